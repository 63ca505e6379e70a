#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Kernels are written in the dialect of dev.cuh: what the emulator cannot run, or
# cannot see, stands in no other file. And the rule is tried on itself.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)

# forbidden FILE...: prints what a kernel file must not hold.
forbidden()
{
    grep -nHE '(^|[^_a-z])asm[^_a-z]|<<<|__shared__|__float2bf|__nv_|cooperative_groups|cuda::|<cub|__expf|rsqrtf|atomicMax|__device__ [a-z_ ]*static' \
        "$@" || :
}

cd "$top"
found=$(forbidden kernels/cuda/*.cu kernels/cuda/frag.cuh kernels/cuda/tile.cuh)
status=0
if [ -n "$found" ]; then
    echo "$found"
    status=1
fi
# Every file of the backend has its twin for the emulator.
for f in kernels/cuda/*.cu; do
    name=$(basename "$f" .cu)
    if ! grep -qF "\"$f\"" "tests/cuemu/kernel/$name.cc" 2>/dev/null; then
        echo "$f is not compiled for the emulator"
        status=1
    fi
done

# Every asm wrapper of dev.cuh has its probe (test_static.sh).
# wrappers FILE: functions whose body holds asm.
wrappers()
{
    awk '/^(static|template).*__device__/ { match($0, /[a-z0-9_]+\(/)
            name = substr($0, RSTART, RLENGTH - 1) }
        /^ *asm[ (]/ { print name }' "$1"
}
n=0
for w in $(wrappers kernels/cuda/dev.cuh); do
    n=$((n + 1))
    if ! grep -qE "(^|[^_a-z0-9])${w}[(<]" tests/cuemu/probe.cu; then
        echo "$w of dev.cuh has no probe"
        status=1
    fi
done
if [ "$n" -lt 7 ]; then
    echo "only $n asm wrappers were found in dev.cuh"
    status=1
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
while IFS= read -r line; do
    echo "$line" >"$tmp/bad.cu"
    if [ -z "$(forbidden "$tmp/bad.cu")" ]; then
        echo "not noticed: $line"
        status=1
    fi
done <<'END'
    asm volatile("bar.sync 0;");
    k<<<1, 32>>>(p);
__shared__ float x[3];
    x = __expf(y);
END
exit "$status"
