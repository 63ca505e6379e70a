#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Computes kernels/cuda/ROOFLINE.md from the real config: bytes and operations of
# a decode step and of a prefill chunk, kernel by kernel, on six GPUs. Nothing in
# it is measured. test_roofline.sh compares the file in the tree with this.
#
#   roofline.py tests/data/config-step-3.7-flash.json
#   bench_gpu | roofline.py CONFIG --measured      sets what was measured against it

import json
import sys

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
# Mean tokens a step at depth 3: published neighbours, anchors C.1 (2.95 - 3.0 of
# 4 for a drafter of the same shape).
TOKENS_DEPTH3 = 2.9
# What a kernel of a class is expected to reach of its bound, and why.
EXPECT = {
    'dense': (0.80, '16-byte streams, 2 blocks of 8 warps an SM'),
    'packed': (0.70, 'as dense, and 2.75 integer operations a weight; where a group has escapes, '
               'one more read that waits for another'),
    'expert': (0.70, 'decode of E2M1 takes 1.75 integer operations a weight'),
    'kv': (0.60, 'short streams, one split a block'),
    'small': (0.30, 'latency, not bandwidth'),
}


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


def hit(e, k, rows):
    """Experts hit by rows that choose k of e evenly."""
    return e * (1 - (1 - k / e) ** rows)


def layer(m, full, moe, rows, ctx):
    """[(kernel, class, weight values, weight bytes a value, other bytes,
    multiplications)]; other bytes are KV."""
    h = m['h'] if full else m['h2']
    q = h * m['hd']
    kv = 2 * m['g'] * m['hd']
    qkv = m['d'] * (q + kv + h)
    seen = ctx if full else min(ctx, m['w'])
    out = [
        ('norm', 'small', 0, 2, rows * m['d'] * 14, 0),
        ('linear q k v gate', 'dense', qkv, 2, 0, rows * qkv),
        ('qkv', 'small', 0, 2, rows * (q + kv) * 6, 0),
        ('attn', 'kv', 0, 2, seen * kv * 2, rows * seen * q * 2),
        ('linear o', 'dense', q * m['d'], 2, 0, rows * q * m['d']),
        ('norm', 'small', 0, 2, rows * m['d'] * 14, 0),
    ]
    if not moe:
        w = m['d'] * m['dense']
        return out + [
            ('mlp_up', 'dense', 2 * w, 2, 0, rows * 2 * w),
            ('linear down', 'dense', w, 2, 0, rows * w),
        ]
    w = m['d'] * m['f']
    s = m['d'] * m['share']
    n = hit(m['e'], m['k'], rows)
    return out + [
        ('router', 'dense', m['d'] * m['e'], 2, 0, rows * m['d'] * m['e']),
        ('expert_up', 'expert', 2 * w * n, MX, 0, rows * m['k'] * 2 * w),
        ('expert_down', 'expert', w * n, MX, 0, rows * m['k'] * w),
        ('mlp_up, shared', 'dense', 2 * s, 2, 0, rows * 2 * s),
        ('linear down, shared', 'dense', s, 2, 0, rows * s),
    ]


def step(m, rows, seqs, ctx, drafts):
    """A decode step: trunk over rows, heads, and `drafts` MTP modules."""
    ops = []
    for i in range(m['n']):
        ops += layer(m, m['full'][i], m['moe'][i], rows, ctx * seqs)
    head = m['d'] * m['v']
    ops.append(('linear head', 'dense', head, 2, 0, rows * head))
    ops.append(('sample', 'small', 0, 2, rows * m['v'] * 20, 0))
    for _ in range(drafts):
        w = 2 * m['d'] * m['d']
        ops.append(('linear join', 'dense', w, 2, 0, rows * w))
        ops += layer(m, False, False, rows, ctx * seqs)
        ops.append(('linear head', 'dense', head, 2, 0, seqs * head))
        ops.append(('sample', 'small', 0, 2, seqs * m['v'] * 20, 0))
    return ops


def packed(op):
    """Whether weights = compact packs it: BF16 matrices but the router."""
    return op[1] == 'dense' and op[0] != 'router'


def time_of(ops, gpu, compact, rows):
    """ms at the bound, ms expected, launches, ms between kernels."""
    mem, bw, tf, sms, share, gap = GPUS[gpu]
    bound = want = 0
    n = 0
    for op in ops:
        name, kind, values, size, other, mul = op
        if compact and packed(op):
            size *= COMPACT
            kind = 'packed'
        t = max((values * size + other) / (bw * 1e12),
                2 * mul / (tf * share * 1e12))
        bound += t
        want += t / EXPECT[kind][0]
        n += 1
    return bound * 1e3, want * 1e3, n, n * gap * 1e-3


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
        for _, kind, values, size, _, _ in layer(m, m['full'][i], m['moe'][i],
                                                 1, 0):
            if kind == 'dense':
                bf += values
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
            size = dict(zip(('d', 'h', 'g', 'e', 'k', 'f', 'share', 'v'),
                            map(int, word[1].split())))
        elif len(word) == 3:
            n, us = int(word[1]), float(word[2])
            ops = step(dict(m, **size), n, 1, 4096, 0)
            op = next(o for o in ops if o[0] == word[0])
            by, fl = op[2] * op[3] + op[4], 2 * op[5]
            row = [word[0], n, f'{us:.1f}', f'{by / us / 1e3:.0f}',
                   f'{fl / us / 1e6:.1f}', '-', '-', '-']
            if gpu is not None:
                mem, bw, tf, sms, share, gap = GPUS[gpu]
                t = max(by / (bw * 1e6), fl / (tf * share * 1e6))
                row[5:] = [f'{t:.2f}', f'{t / us:.0%}',
                           f'{EXPECT[op[1]][0]:.0%}']
            rows.append(row)
        else:  # why it was skipped
            print(line, end='')
    if len(rows) > 1:
        table(rows)


def main():
    m = read(sys.argv[1])
    if sys.argv[2:] == ['--measured']:
        measured(m, sys.stdin)
        return
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

## Decode

Tokens a second, all sequences together, context 4,096 each. *Ceiling*: every kernel at its bound.
*Expected*: each class at its share (below) plus one gap a launch. Depth 3 takes ''' +
          f'{TOKENS_DEPTH3} tokens a step.\n')
    for compact in (False, True):
        print('### ' + ('Compact BF16 weights (12.03 bits, weights = compact)' if compact else
                        'BF16 weights') + '\n')
        rows = [('GPU', 'sequences', 'depth', 'GB a step', 'bound ms',
                 'expected ms', 'gaps ms', 'ceiling tok/s', 'expected tok/s')]
        for g in GPUS:
            for seqs in (1, 8, 32):
                for depth in (0, 3):
                    n = seqs * (depth + 1)
                    ops = step(m, n, seqs, 4096, depth)
                    b, w, k, gap = time_of(ops, g, compact, n)
                    gb = sum(x[2] * x[3] * (COMPACT if compact and packed(x)
                                            else 1) + x[4] for x in ops) / 1e9
                    tok = seqs * (TOKENS_DEPTH3 if depth else 1)
                    rows.append((g, seqs, depth, f'{gb:.2f}', f'{b:.2f}',
                                 f'{w:.2f}', f'{gap:.2f}',
                                 f'{tok / b * 1e3:.0f}',
                                 f'{tok / (w + gap) * 1e3:.0f}'))
        table(rows)
    ops = step(m, 1, 1, 4096, 0)
    moe = layer(m, False, True, 1, 4096)
    n = len(moe)
    gap = time_of(ops, 'H200', False, 1)
    print(f'''Target, H200, one sequence: depth 0 and depth 3 as *expected* above. Kernels a MoE layer in decode:
{n}, where 9 were aimed at (tests/daemon/test_replay.c counts them). Launch gaps of a step, at the
assumed {GPUS['H200'][5]} us inside of a graph: {gap[3]:.2f} ms of {gap[1] + gap[3]:.2f} ms. Programmatic dependent launch hides most of a
gap (perhaps half of this line); the shared expert as one more expert of expert_up and expert_down
would save two launches a MoE layer, {2 * sum(m['moe'])} in all, and reach the 9.

## Kernel by kernel: H200, one sequence, depth 0
''')
    total = {}
    for name, kind, values, size, other, mul in ops:
        t = total.setdefault(name, [kind, 0, 0, 0, 0])
        t[1] += values * size + other
        t[2] += 2 * mul
        t[3] += 1
        t[4] += max((values * size + other) / 4.8e12, 2 * mul / (989e12 * .62))
    rows = [('kernel', 'times', 'MB', 'GFLOP', 'bound us', 'expected share')]
    for name, (kind, by, fl, cnt, t) in sorted(total.items(),
                                               key=lambda x: -x[1][4]):
        rows.append((name, cnt, f'{by / 1e6:.1f}', f'{fl / 1e9:.2f}',
                     f'{t * 1e6:.0f}', f'{EXPECT[kind][0]:.0%}'))
    table(rows)
    for kind, (share, why) in EXPECT.items():
        print(f'* {kind}: {share:.0%} of the bound: {why}.')
    print('''
sample takes a block a row: one SM's bandwidth, not the device's; several blocks a row would be
the next thing to do. Selections (top-k, top-p) add into shared histograms, which contend where
logits share an exponent.

## Prefill, a chunk of 2,048 rows at context 4,096
''')
    rows = [('GPU', 'TFLOP', 'bound ms at mma.sync', 'bound ms at the sheet',
             'expected tok/s')]
    for g, (mem, bw, tf, sms, share, gap) in GPUS.items():
        ops = step(m, 2048, 1, 4096, 0)
        head = m['d'] * m['v']
        fl = sum(2 * x[5] for x in ops) - 2 * 2047 * head  # one row's logits
        a = sum(max((x[2] * x[3] + x[4]) / (bw * 1e12),
                    2 * x[5] / (tf * share * 1e12)) for x in ops) * 1e3
        b = sum(max((x[2] * x[3] + x[4]) / (bw * 1e12),
                    2 * x[5] / (tf * 1e12)) for x in ops) * 1e3
        rows.append((g, f'{fl / 1e12:.1f}', f'{a:.0f}', f'{b:.0f}',
                     f'{2048 / a * 1e3 * 0.45:.0f}'))
    table(rows)
    print('''Expected: 45 % of the mma.sync bound. A tile is 128 outputs by 64 rows and brings 43 products a byte
from L2, which is short of what the tensor cores take on the largest devices; cuBLASLt for dense
products where `exact = no` is not there yet.

## Published neighbours

Step-3.5 in BF16 on 4 x H200, vLLM, no MTP: about 84 tokens a second a stream. GPUs unnamed, BF16
GGUF, llama.cpp: 69.8. 2 x DGX Spark, NVFP4, vLLM, MTP 3: 31-32. DeepSeek-V4-Flash W4A16, 2 x H200:
88; RTX PRO 6000 x 2: 99. No published figure for this model on one H200 in four bits is known.''')


main()
