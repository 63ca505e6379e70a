#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# What is said before there is a CUDA plugin: by configure of an architecture in
# another form than nvcc's numbers, and by check-gpu where no plugin was built.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
build=$(cd "${builddir:-.}" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0

# refused ARCH WORD: configure must name the word and the form.
refused()
{
    local out

    if out=$(cd "$tmp" && "$top/configure" CUDA_ARCH="$1" 2>&1); then
        echo "CUDA_ARCH=\"$1\" was taken"
        status=1
    elif [[ $out != *"CUDA_ARCH: \"$2\" is no GPU architecture: the form is \"80 90a\""* ]]; then
        echo "CUDA_ARCH=\"$1\": $out"
        status=1
    fi
}

if [ -x "$top/configure" ]; then
    refused sm_90a sm_90a
    refused '80 compute_90' compute_90
    refused 80,90a 80,90a
    refused 9.0 9.0
    refused '90a all' all
fi

if [ ! -e "$build/kernels/cuda/stepd-cuda.so" ]; then
    out=$(bash "$top/tests/cuemu/check_gpu.sh")
    [[ $out == 'SKIP: check-gpu: the CUDA plugin is not part of this build (configure found no nvcc, or --without-cuda)' ]] ||
        { echo "check-gpu: $out"; status=1; }
fi
exit "$status"
