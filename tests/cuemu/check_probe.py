#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Resolves every operand of the asm lines in the PTX of probe.cu to the argument
# and offset it came from or goes to, and compares with what must be there.

import re
import sys

WANT = [
    'probe_mma mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32'
    ' > arg0+0 arg0+4 arg0+8 arg0+12 < arg1+0 arg1+4 arg1+8 arg1+12'
    ' < arg2+0 arg2+4 < arg0+0 arg0+4 arg0+8 arg0+12',
    'probe_ldmatrix ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16'
    ' > arg0+0 arg0+4 arg0+8 arg0+12',
    'probe_mul fma.rn.bf16x2 > arg0+0 < arg1+0 < arg2+0 < -2147450880',
    'probe_exp2 ex2.approx.f32 > arg0+0 < arg1+0',
    'probe_cp_async cp.async.cg.shared.global 16 16 of arg1+48',
]


def probes(text):
    for name, body in re.findall(
            r'\.entry (\w+)\(.*?\)\s*\{(.*?)\n\}', text, re.S):
        base, src, dst = {}, {}, {}
        for line in body.split('\n'):
            if m := re.search(r'ld\.param\.[ub]64\s+(%rd\d+), \[\w+_param_(\d+)\]',
                              line):
                base[m[1]] = ('arg' + m[2], 0)
            elif m := re.search(r'cvta\.to\.global\.u64\s+(%rd\d+), (%rd\d+)',
                                line):
                base[m[1]] = base.get(m[2])
            elif m := re.search(r'add\.s64\s+(%rd\d+), (%rd\d+), (\d+);', line):
                if m[2] in base:
                    base[m[1]] = (base[m[2]][0], base[m[2]][1] + int(m[3]))
            elif m := re.search(
                    r'ld\.global(?:\.nc)?\.[a-z]\d+\s+(%\w+), \[(%rd\d+)(?:\+(\d+))?\]',
                    line):
                a, o = base[m[2]]
                src[m[1]] = '%s+%d' % (a, o + int(m[3] or 0))
            elif m := re.search(r'mov\.[bu]32\s+(%\w+), (-?[%\w]+);', line):
                src[m[1]] = src.get(m[2], m[2])
            elif m := re.search(
                    r'st\.global\.[a-z]\d+\s+\[(%rd\d+)(?:\+(\d+))?\], (%\w+)',
                    line):
                a, o = base[m[1]]
                dst[m[3]] = '%s+%d' % (a, o + int(m[2] or 0))
        for line in body.split('\n'):
            line = line.strip()
            if re.match(r'(mma\.sync|ldmatrix)', line):
                g = re.findall(r'\{([^}]*)\}', line)
                ins = [' < ' + ' '.join(src.get(x.strip(), x.strip())
                                        for x in y.split(',')) for y in g[1:]]
                yield '%s %s > %s%s' % (
                    name, line.split()[0],
                    ' '.join(dst.get(x.strip(), x.strip())
                             for x in g[0].split(',')), ''.join(ins))
            elif re.match(r'(fma\.rn\.bf16x2|ex2\.approx)', line):
                op, rest = line.rstrip(';').split(None, 1)
                r = [x.strip() for x in rest.split(',')]
                yield '%s %s > %s%s' % (name, op, dst.get(r[0], r[0]), ''.join(
                    ' < ' + src.get(x, x) for x in r[1:]))
            elif m := re.match(
                    r'(cp\.async\.cg\S+) \[%r\d+\], \[(%rd\d+)\], (\d+), (%?\w+)',
                    line):
                a, o = base[m[2]]
                yield '%s %s %s %s of %s+%d' % (name, m[1], m[3],
                                                src.get(m[4], m[4]), a, o)


got = sorted(probes(open(sys.argv[1]).read()))
if got != sorted(WANT):
    print('expected:', *sorted(WANT), 'found:', *got, sep='\n  ')
    sys.exit(1)
