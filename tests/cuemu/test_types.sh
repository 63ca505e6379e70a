#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The project's own BF16, FP8 and FP4 numbers against NVIDIA's headers, where
# they are; no library, no device. And that a wrong bit would be noticed.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
build=$(cd "${builddir:-.}" && pwd)
nvcc=$(sed -n 's/^NVCC = //p' "$build/Makefile")
nvcc=${nvcc:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
include=$(dirname "$nvcc")/../include

if [ ! -e "$include/cuda_fp4.h" ] || [ ! -e "$include/cuda_fp8.h" ]; then
    echo "SKIP: no CUDA headers with FP4 and FP8 beside $nvcc"
    exit 77
fi
if ! command -v g++ >/dev/null; then
    echo 'SKIP: no g++'
    exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# compare DIR: with the kernels/quant.h that is found below DIR.
compare()
{
    g++ -std=c++17 -O2 "-I$1" "-I$top" -isystem "$include" \
        "$top/tests/cuemu/types_check.cc" -o "$tmp/check" || exit 1
    "$tmp/check"
}
status=0
compare "$top" || status=1

mkdir "$tmp/kernels"
for change in 's/(e + 120u)/(e + 119u)/' 's/mag < 2 ?/mag < 1 ?/' \
    's/0x00400000u/0x00800000u/' 's/u + 0x7fffu/u + 0x8000u/'; do
    sed "$change" "$top/kernels/quant.h" >"$tmp/kernels/quant.h"
    if cmp -s "$top/kernels/quant.h" "$tmp/kernels/quant.h"; then
        echo "$change changes nothing"
        status=1
    elif compare "$tmp" >/dev/null; then
        echo "$change is not noticed"
        status=1
    fi
done
exit "$status"
