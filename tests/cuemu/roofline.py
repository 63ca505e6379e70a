#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Computes kernels/cuda/ROOFLINE.md from the real config: bytes and operations of
# a decode step and of a prefill chunk, kernel by kernel, on six GPUs. Nothing in
# it is measured. test_roofline.sh compares the file in the tree with this. How many
# kernels, graphs and copies a step has is what tests/daemon/test_replay.c asserts;
# the numbers are read there.
#
#   roofline.py tests/data/config-step-3.7-flash.json
#   bench_gpu | roofline.py CONFIG --measured      sets what was measured against it

import json
import os
import re
import sys
import textwrap

# name: memory GB, TB/s, BF16 dense T with FP32 sums, SMs, share of that peak that
# mma.sync can reach (wgmma and tcgen05 have the rest), us a kernel boundary.
GPUS = {
    'H200': (141, 4.8, 989, 132, 0.62, 1.0),
    'B200': (180, 7.7, 2250, 148, 0.30, 1.0),
    'RTX PRO 6000': (96, 1.792, 504, 188, 1.0, 1.0),
    'RTX 5090': (32, 1.792, 210, 170, 1.0, 1.0),
    'GB10': (128, 0.273, 125, 48, 1.0, 1.5),
    'A100 80GB': (80, 2.04, 312, 108, 1.0, 1.2),
}
MX = 4.25 / 8  # bytes a weight
COMPACT = 12.03 / 16  # of BF16: 12 bits, an index, one escape in 6,000
# Mean tokens a step at depth 3: assumed, from another model's published 2.95 - 3.0
# of 4 for a drafter of the same shape.
TOKENS_DEPTH3 = 2.9
COPY_US = 1.5  # of the stream, a copy or a graph's start: assumed
# What a kernel of a class is expected to reach of its bound in decode, and why.
EXPECT = {
    'dense': (0.80, 'linear, mlp_up, router: weights in 16-byte streams, each byte '
              'once, 2 blocks of 8 warps an SM; what is missing is the ramp of '
              'each launch and the fold through shared memory'),
    'packed': (0.70, 'compact weights: as dense, and 2.75 integer operations a '
               'weight; where a group has escapes, one more read that waits for '
               'another'),
    'expert': (0.70, 'expert_up, expert_down: as dense, but E2M1 takes 1.75 '
               'integer operations a weight, and a piece of work is short: 10 to '
               '32 groups of columns'),
    'kv': (0.60, 'attn: short streams; a block brings 8 pages, two in flight'),
    'small': (0.30, "norm, qkv, sample: latency, not bandwidth; sample takes one "
              "block a row, so one SM's bandwidth"),
}
# Of the mma.sync bound in prefill; of the sheet's where cuBLASLt computes.
PREFILL = 0.45
LIBRARY = 0.75


def read(path):
    c = json.load(open(path))
    t = c.get('text_config', c)
    other = t['attention_other_setting']
    n = t['num_hidden_layers']
    full = [k == 'full_attention' for k in t['layer_types'][:n]]
    moe = [int(x) for x in t['moe_layers_enum'].split(',')]
    return dict(d=t['hidden_size'], n=n, full=full,
                moe=[i in moe for i in range(n)], v=t['vocab_size'],
                dense=t['intermediate_size'], h=t['num_attention_heads'],
                h2=other['num_attention_heads'], g=t['num_attention_groups'],
                hd=t['head_dim'], e=t['moe_num_experts'], k=t['moe_top_k'],
                f=t['moe_intermediate_size'], share=t['share_expert_dim'],
                w=t['sliding_window'], mtp=t['num_nextn_predict_layers'])


def counted():
    """The #defines of test_replay.c."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        '../daemon/test_replay.c')
    return {name: int(n) for name, n in
            re.findall(r'^#define (\w+) (\d+)$', open(path).read(), re.M)}


COUNT = counted()


def copies_of(depth):
    """Beside kernels in a step's stream: (graphs, uploads, downloads)."""
    return tuple(COUNT[f'{what}_DEPTH_{depth}']
                 for what in ('GRAPHS', 'UPLOADS', 'DOWNLOADS'))


def copies_ms(depth):
    return sum(copies_of(depth)) * COPY_US * 1e-3


def hit(e, k, rows):
    """Experts hit by rows that choose k of e evenly."""
    return e * (1 - (1 - k / e) ** rows)


FOLDED = 16  # rows up to which the shared expert goes with the routed ones


def layer(m, full, moe, rows, ctx, seqs=1, compact=False):
    """[(kernel, class, BF16 values of weights, MXFP4 ones, other bytes,
    multiplications, launches)]; other bytes are KV and activations."""
    h = m['h'] if full else m['h2']
    q = h * m['hd']
    kv = 2 * m['g'] * m['hd']
    qkv = m['d'] * (q + kv + h)
    seen = ctx if full else min(ctx, m['w'])
    act = 1 if rows <= FOLDED else 2  # launches of mlp_up: linear, swiglu
    out = [
        ('norm', 'small', 0, 0, rows * m['d'] * 14, 0, 1),
        ('linear q k v gate', 'dense', qkv, 0, 0, rows * qkv, 1),
        ('qkv', 'small', 0, 0, rows * (q + kv) * 6, 0, 1),
        ('attn', 'kv', 0, 0, seqs * seen * kv * 2, rows * seen * q * 2, 1),
        ('linear o', 'dense', q * m['d'], 0, 0, rows * q * m['d'], 1),
        ('norm', 'small', 0, 0, rows * m['d'] * 14, 0, 1),
    ]
    if not moe:
        w = m['d'] * m['dense']
        return out + [
            ('mlp_up', 'dense', 2 * w, 0, 0, rows * 2 * w, act),
            ('linear down', 'dense', w, 0, 0, rows * w, 1),
        ]
    w = m['d'] * m['f']
    s = m['d'] * m['share']
    n = hit(m['e'], m['k'], rows)
    r = m['d'] * m['e']
    few = rows <= FOLDED
    out += [('router', 'dense', r, 0, 0, rows * r, 1 if few else 3)]
    if few and not compact:
        return out + [
            ('expert_up', 'expert', 2 * s, 2 * w * n, 0,
             rows * 2 * (m['k'] * w + s), 1),
            ('expert_down', 'expert', s, w * n, 0, rows * (m['k'] * w + s), 1),
        ]
    return out + [
        ('expert_up', 'expert', 0, 2 * w * n, 0, rows * m['k'] * 2 * w, 1),
        ('mlp_up, shared', 'dense', 2 * s, 0, 0, rows * 2 * s, act),
        ('expert_down', 'expert', 0, w * n, 0, rows * m['k'] * w,
         1 if few else 2),
        ('linear down, shared', 'dense', s, 0, 0, rows * s, 1),
    ]


def step(m, rows, seqs, ctx, drafts, compact=False, drawn=None):
    """A decode step: trunk over rows, heads, and `drafts` MTP modules."""
    ops = []
    drawn = rows if drawn is None else drawn
    for i in range(m['n']):
        ops += layer(m, m['full'][i], m['moe'][i], rows, ctx, seqs,
                     compact)
    head = m['d'] * m['v']
    ops.append(('linear head', 'dense', head, 0, 0, drawn * head, 1))
    ops.append(('sample', 'small', 0, 0, drawn * m['v'] * 20, 0, 1))
    ops.append(('beside', 'small', 0, 0, rows * m['d'] * 20, 0,
                COUNT['BESIDE'] - 2))
    for _ in range(drafts):
        w = 2 * m['d'] * m['d']
        ops.append(('linear join', 'dense', w, 0, 0, rows * w, 1))
        ops += layer(m, False, False, rows, ctx, seqs,
                     compact)
        ops.append(('linear head', 'dense', head, 0, 0, seqs * head, 1))
        ops.append(('sample', 'small', 0, 0, seqs * m['v'] * 20, 0, 1))
        ops.append(('beside', 'small', 0, 0, rows * m['d'] * 20, 0,
                    COUNT['MODULE'] - COUNT['DENSE_LAYER'] - 3))
    return ops


def check_launches(m):
    """A layer has here the kernels that test_replay.c counts."""
    for name, moe, compact in (('MOE_LAYER', True, False),
                               ('MOE_LAYER_COMPACT', True, True),
                               ('DENSE_LAYER', False, False)):
        n = sum(x[6] for x in layer(m, False, moe, 1, 4096, 1, compact))
        if n != COUNT[name]:
            sys.exit(f'{name}: {n} launches here, {COUNT[name]} in test_replay.c')


def packed(op):
    """Whether weights = compact packs it: BF16 matrices but the router."""
    return op[1] == 'dense' and op[0] != 'router'


def bytes_of(op, compact=False):
    return (op[2] * 2 * (COMPACT if compact and packed(op) else 1) +
            op[3] * MX + op[4])


def expected(op, compact=False):
    """Of the bound."""
    return EXPECT['packed' if compact and packed(op) else op[1]][0]


def bound(op, gpu, compact=False, sheet=False):
    """Seconds at the bound; sheet: at the sheet's FLOP/s, not mma.sync's."""
    mem, bw, tf, sms, share, gap = GPUS[gpu]
    return max(bytes_of(op, compact) / (bw * 1e12),
               2 * op[5] / (tf * (1 if sheet else share) * 1e12))


def time_of(ops, gpu, compact):
    """ms at the bound, ms expected, launches, ms between kernels."""
    at = sum(bound(x, gpu, compact) for x in ops)
    want = sum(bound(x, gpu, compact) / expected(x, compact) for x in ops)
    n = sum(x[6] for x in ops)
    return at * 1e3, want * 1e3, n, n * GPUS[gpu][5] * 1e-3


def merged(ops, compact=False):
    """By kernel: [(name, class, times, bytes, FLOP, ops)], as they come."""
    all = {}
    for op in ops:
        t = all.setdefault(op[0], [op[1], 0, 0, 0, []])
        t[1] += 1
        t[2] += bytes_of(op, compact)
        t[3] += 2 * op[5]
        t[4].append(op)
    return [(name, *t) for name, t in all.items()]


def table(rows):
    width = [max(len(str(r[i])) for r in rows) for i in range(len(rows[0]))]
    for j, r in enumerate(rows):
        print('| ' + ' | '.join(str(x).ljust(w) for x, w in zip(r, width)) + ' |')
        if j == 0:
            print('|' + '|'.join('-' * (w + 2) for w in width) + '|')
    print()


def weights_gb(m):
    """Resident: (BF16 values, MXFP4 values)."""
    bf = 2 * m['v'] * m['d']
    mx = 0
    for i in range(m['n']):
        for op in layer(m, m['full'][i], m['moe'][i], 1, 0):
            bf += op[2]
        if m['moe'][i]:
            mx += 3 * m['d'] * m['f'] * m['e']
    for _ in range(m['mtp']):
        bf += 2 * m['d'] * m['d'] + m['d'] * m['v']
        bf += sum(x[2] for x in layer(m, False, False, 1, 0))
    return bf, mx


def measured(m, lines):
    """Prints each line of bench_gpu beside its bound on that device."""
    rows = [('kernel', 'rows', 'us', 'GB/s', 'TFLOP/s', 'bound us',
             'of the bound', 'expected')]
    gpu = None
    for line in lines:
        word = line.rstrip('\n').split('\t')
        if word[0] == 'device':
            print(word[1])
            gpu = next((g for g in GPUS if g.split()[-1] in word[1] or
                        g.split()[0] in word[1]), None)
            if gpu is None:
                print('no sheet of this device is known: no bounds')
        elif word[0] == 'sizes':
            size = dict(zip(('d', 'h', 'g', 'e', 'k', 'f', 'share', 'v', 'ctx'),
                            map(int, word[1].split())))
        elif len(word) == 3:
            n, us = int(word[1]), float(word[2])
            name = word[0].removesuffix(', compact')
            compact = name != word[0]
            name = name.removesuffix(', window')
            all = dict(m, **size)
            # layer 0 is a full one; the window is that of the others
            ops = (layer(dict(all, h2=all['h']), False, False, n, size['ctx'])
                   if word[0].endswith('window') else
                   step(all, n, 1, size['ctx'], 0, compact))
            op = next(o for o in ops if o[0] == name)
            by, fl = bytes_of(op, compact), 2 * op[5]
            row = [word[0], n, f'{us:.1f}', f'{by / us / 1e3:.0f}',
                   f'{fl / us / 1e6:.1f}', '-', '-', '-']
            if gpu is not None:
                t = bound(op, gpu, compact) * 1e6
                row[5:] = [f'{t:.2f}', f'{t / us:.0%}',
                           f'{expected(op, compact):.0%}']
            rows.append(row)
        else:  # why it was skipped
            print(line, end='')
    if len(rows) > 1:
        table(rows)


def decode(m, seqs, depth, compact):
    return step(m, seqs * (depth + 1), seqs, 4096, depth, compact)


def by_library(op):
    """Whether exact = no gives a prefill op to cuBLASLt."""
    return op[0].startswith(('linear', 'mlp_up'))


def main():
    m = read(sys.argv[1])
    if sys.argv[2:] == ['--measured']:
        measured(m, sys.stdin)
        return
    check_launches(m)
    bf, mx = weights_gb(m)
    print('''<!-- SPDX-License-Identifier: Apache-2.0
     Copyright 2026 The stepd authors
     Written by tests/cuemu/roofline.py; do not edit. -->

# What the kernels can reach

**Nothing here was measured.** No GPU was at hand when the backend was written. These are bounds
computed from the real config and public specifications, and expectations with their reasons;
`make bench-gpu` is for the day there is a device.
''')
    print(f'Weights: {bf / 1e9:.2f} G values in BF16 ({2 * bf / 1e9:.1f} GB), '
          f'{mx / 1e9:.2f} G in MXFP4 ({mx * MX / 1e9:.1f} GB); all '
          f'{(2 * bf + mx * MX) / 1e9:.1f} GB.\n')
    rows = [('GPU', 'memory GB', 'TB/s', 'BF16 T', 'mma.sync share of it',
             'fits one')]
    for g, (mem, bw, tf, sms, share, gap) in GPUS.items():
        rows.append((g, mem, bw, tf, f'{share:.0%}',
                     'yes' if (2 * bf + mx * MX) / 1e9 < 0.97 * mem else 'no'))
    table(rows)
    print('''mma.sync m16n8k16 is the one tensor instruction that serves all targets. On Hopper wgmma reaches
the sheet's figure and mma.sync about 62 % of it; on data-centre Blackwell tcgen05 does and mma.sync
about 30 %; on the others mma.sync is the whole of it. The two shares are general knowledge, to be
measured. Where a model does not fit one device the rows below are what that device would do with
that much of it, kept for comparison.

## Target

Tokens a second of one sequence at context 4,096, *expected* as below: what `make bench-gpu` and a
daemon on such a device are to be held against. Depth 3 rests on an assumption: ''' +
          f'''{TOKENS_DEPTH3} tokens a
step, which another model's drafter was published with (below). The acceptance of this model's
modules is not known; the columns scale with it.
''')
    rows = [('GPU', 'BF16, depth 0', 'BF16, depth 3 (assumed)',
             'compact, depth 0', 'compact, depth 3 (assumed)')]
    for g in GPUS:
        row = [g]
        for compact in (False, True):
            for depth in (0, 3):
                _, w, _, gap = time_of(decode(m, 1, depth, compact), g, compact)
                tok = TOKENS_DEPTH3 if depth else 1
                row.append(f'{tok / (w + gap + copies_ms(depth)) * 1e3:.0f}')
        rows.append(row)
    table(rows)
    print('''## Decode

Tokens a second, all sequences together, context 4,096 each. *Ceiling*: every kernel at its bound.
*Expected*: each class at its share (below) plus one gap a launch and the copies. Depth 3 takes ''' +
          f'{TOKENS_DEPTH3}\ntokens a step: assumed, not measured.\n')
    for compact in (False, True):
        print('### ' + ('Compact BF16 weights (12.03 bits, weights = compact)' if compact else
                        'BF16 weights') + '\n')
        rows = [('GPU', 'sequences', 'depth', 'GB a step', 'GFLOP a step',
                 'bound ms', 'expected ms', 'gaps ms', 'copies ms',
                 'ceiling tok/s', 'expected tok/s')]
        for g in GPUS:
            for seqs in (1, 8, 32):
                for depth in (0, 3):
                    ops = decode(m, seqs, depth, compact)
                    b, w, k, gap = time_of(ops, g, compact)
                    gb = sum(bytes_of(x, compact) for x in ops) / 1e9
                    fl = sum(2 * x[5] for x in ops) / 1e9
                    tok = seqs * (TOKENS_DEPTH3 if depth else 1)
                    copies = copies_ms(depth)
                    rows.append((g, seqs, depth, f'{gb:.2f}', f'{fl:.0f}',
                                 f'{b:.2f}', f'{w:.2f}', f'{gap:.2f}',
                                 f'{copies:.2f}', f'{tok / b * 1e3:.0f}',
                                 f'{tok / (w + gap + copies) * 1e3:.0f}'))
        table(rows)
    ops = decode(m, 1, 0, False)
    n = len(layer(m, False, True, 1, 4096))
    _, want, launches, gap = time_of(ops, 'H200', False)
    one = m['n'] * GPUS['H200'][5] * 1e-3
    all = {(depth, compact): sum(x[6] for x in decode(m, 1, depth, compact))
           for depth in (0, 3) for compact in (False, True)}
    copies = copies_ms(0)
    us = GPUS['H200'][5]
    print(f'''## Launch gaps and copies

Kernels of a MoE layer in decode: {n}, for up to {FOLDED} rows of BF16 weights: norm, linear q k v gate, qkv,
attn, linear o, norm, router, expert_up, expert_down. Compact weights take two more, for the shared
expert. Fills and copies within the device are counted as kernels. All counts of this section are
those that tests/daemon/test_replay.c asserts on the emulator, over a small model of the same kinds
of layers: {COUNT['MOE_LAYER']} a MoE layer ({COUNT['MOE_LAYER_COMPACT']} compact), {COUNT['DENSE_LAYER']} a dense one, {COUNT['BESIDE']} beside them, {COUNT['MODULE']} a module. In the same stream,
one after the other, come graphs, uploads and downloads: the plan in, one graph, captured when its shape
first comes, the results out. Masks, where rows have them, are one copy more, all together, ordered
behind the trunk, and cut the step into {COUNT['GRAPHS_MASKED']} graphs; penalties are one copy more before the graph.
''')
    rows = [('a step of one sequence', 'kernels', 'compact', 'graphs',
             'uploads', 'downloads', 'gaps ms, H200', 'copies ms')]
    for depth in (0, 3):
        rows.append((f'depth {depth}', all[depth, False], all[depth, True],
                     *copies_of(depth), f'{all[depth, False] * us * 1e-3:.2f}',
                     f'{copies_ms(depth):.3f}'))
    table(rows)
    print(f'''*Copies ms*: {COPY_US} us a copy or a graph's start, assumed. The graph starts when the host has gone
through the whole step; what it takes for that is not in it.

''', end='')
    rows = [('H200, one sequence, depth 0', 'ms', 'tok/s')]
    for what, ms, without in (
            ('kernels as expected, no gaps, no copies', want, want),
            (f'gaps, {us:.1f} us a launch (assumed)', gap, want + gap),
            (f'and copies, {COPY_US} us each (assumed)', copies,
             want + gap + copies),
            ('half of the gaps by programmatic launch', gap / 2,
             want + gap / 2 + copies),
            ('one launch a layer less (qkv in attn)', gap - one,
             want + gap - one + copies)):
        rows.append((what, f'{ms:.2f}', f'{1e3 / without:.0f}'))
    table(rows)
    print(f'''Programmatic dependent launch lets the next kernel start and read its weights while the last one
drains: half of a gap is a guess. qkv could become the beginning of attn, one launch a layer; but each
split of a sequence would wait for the one block that writes the new slot, and q would be rotated once
a split. Neither is done before there is a device to measure on.

## Decode, kernel by kernel

MB and GFLOP a step, BF16 weights; compact ones take {COMPACT:.0%} of the bytes of what is dense. *Beside*:
embed, gather, settle, accept, the norms of heads and modules, fills and copies on the device.
''')
    cases = [(q, depth) for q in (1, 8, 32) for depth in (0, 3)]
    by = [{x[0]: x for x in merged(decode(m, q, depth, False))}
          for q, depth in cases]
    names = list(dict.fromkeys(x for case in by for x in case))
    rows = [['kernel'] + [f'{q} x depth {depth}' for q, depth in cases]]
    for name in names:
        rows.append([name] + [
            f'{c[name][3] / 1e6:.0f} / {c[name][4] / 1e9:.1f}'
            if name in c else '-' for c in by])
    table(rows)
    print('Bound in us a step, one sequence, depth 0, and what of it is expected.\n')
    rows = [['kernel', 'times'] + list(GPUS) + ['expected share']]
    for name, kind, times, _, _, all in merged(ops):
        rows.append([name, times] +
                    [f'{sum(bound(x, g) for x in all) * 1e6:.0f}'
                     for g in GPUS] + [f'{expected(all[0]):.0%}'])
    table(rows)
    for kind, (share, why) in EXPECT.items():
        print('\n'.join(textwrap.wrap(f'* {kind}: {share:.0%} of the bound. {why}.',
                                      100, subsequent_indent='  ')))
    print('''
Several blocks a row would be the next thing to do in sample. Selections (top-k, top-p) add into
shared histograms, which contend where logits share an exponent.

## Prefill, a chunk of 2,048 rows at context 4,096
''')
    ops = step(m, 2048, 1, 4096, 0, drawn=1)
    fl = sum(2 * x[5] for x in ops)
    print(f'{fl / 1e12:.1f} TFLOP, {sum(map(bytes_of, ops)) / 1e9:.1f} GB.\n')
    rows = [('GPU', 'bound ms at mma.sync', 'bound ms at the sheet',
             'expected tok/s', 'expected tok/s, exact = no')]
    for g in GPUS:
        a = sum(bound(x, g) for x in ops)
        b = sum(bound(x, g, sheet=True) for x in ops)
        lt = sum(bound(x, g, sheet=True) / LIBRARY if by_library(x) else
                 bound(x, g) / PREFILL for x in ops)
        rows.append((g, f'{a * 1e3:.0f}', f'{b * 1e3:.0f}',
                     f'{2048 / a * PREFILL:.0f}', f'{2048 / lt:.0f}'))
    table(rows)
    print('Bound in ms a chunk at mma.sync, kernel by kernel.\n')
    rows = [['kernel', 'times', 'MB', 'GFLOP'] + list(GPUS)]
    for name, kind, times, size, flop, all in merged(ops):
        rows.append([name, times, f'{size / 1e6:.0f}', f'{flop / 1e9:.0f}'] +
                    [f'{sum(bound(x, g) for x in all) * 1e3:.2f}'
                     for g in GPUS])
    table(rows)
    once = 128 * 64 / ((128 + 64) * 2)
    twice = 128 * 64 / ((2 * 128 + 64) * 2)
    print(f'''Expected: {PREFILL:.0%} of the mma.sync bound. A tile is 128 outputs by 64 rows: {once:.0f} products a byte
({2 * once:.0f} operations) of BF16 where each is read once. Two warps read each weight tile, one for each half of
the rows (tile.cuh); where L1 does not keep it for the second, L2 gives {twice:.0f} products a byte ({2 * twice:.0f} operations).
Both are short of what the tensor cores take on the largest devices. With `exact = no` dense
products (linear, and both halves of mlp_up) go to cuBLASLt, which has wgmma and tcgen05: {LIBRARY:.0%} of the
sheet is expected of it; experts, attention and the rest stay as they are.

## Published neighbours

None of these was measured here; conditions differ, sources as published in 2026.

| where                     | engine, format                            | tokens a second        |
|---------------------------|-------------------------------------------|------------------------|
| 4 x H200                  | vLLM, Step-3.5 BF16, no MTP, 10 streams    | 84 a stream, 812 in all |
| GPUs unnamed              | llama.cpp, BF16 GGUF, no MTP               | 69.8                   |
| GPU unnamed               | llama.cpp, IQ4_XS, 1 MTP head              | 35.4 to 45.6           |
| DGX Spark (GB10)          | llama.cpp, IQ4, MTP 0 / 1 / 2 / 3          | 23.7 / 32 / 36.6 / 32.5 |
| 2 x DGX Spark             | vLLM, NVFP4, MTP 3                         | 31-32                  |
| 8 x H200                  | SGLang, MiMo-V2-Flash, 3-layer drafter     | 184-201, 2.95-3.0 of 4 |
| 2 x H200                  | vLLM, DeepSeek-V4-Flash W4A16              | 88                     |
| 2 x RTX PRO 6000          | vLLM, DeepSeek-V4-Flash W4A16              | 99                     |

No published figure for this model on one H200 in four bits is known.''')


main()
