#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# What a plugin says where it cannot run: none installed, no plugin at all, one of
# another interface; an emulated device that is absent, breaks as it is opened, or
# is held by others; and, where CUDA was built,
# no driver or the toolkit's stub. And that auto goes on with the CPU.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
build=$(cd "${builddir:-.}" && pwd)
cuemu=$build/tests/cuemu
probe=$build/tests/cuemu/open_backend
if [ ! -x "$probe" ]; then
    echo "SKIP: neither the CUDA backend nor its emulator is part of this build"
    exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0

# says NAME DIR WORDS [ENV...]: opening must fail, with these words.
says()
{
    local name=$1 dir=$2 words=$3 out

    shift 3
    if out=$(env "$@" STEPD_PLUGIN_DIR="$dir" "$probe" "$name" 2>&1); then
        echo "$name in $dir opened: $out"
        status=1
    elif [[ $out != *"$words"* ]]; then
        echo "$name in $dir says \"$out\", not \"$words\""
        status=1
    fi
}

says cuda "$tmp" 'not installed' A=
says nonsense "$tmp" 'stepd-nonsense.so: not installed' A=
echo text >"$tmp/stepd-text.so"
says text "$tmp" 'file too short' A=
cp "$build"/tests/cuemu/bad/stepd-{old,none,size}.so "$tmp"
says old "$tmp" 'built for another stepd: interface 4294967295' A=
interface=$(sed -n 's/^#define KERN_PLUGIN_ABI \([0-9]*\)u$/\1/p' \
    "$top/kernels/plugin.h")
says size "$tmp" "interface $interface with tables of 12 bytes, not $interface with " A=
says none "$tmp" 'lacks kern_plugin' A=
if [ -e "$cuemu/plain/stepd-cuda-emulated.so" ]; then
    says cuda-emulated "$cuemu/plain" 'told to have no device' \
        STEPD_CUEMU=absent=1
    says cuda-emulated "$cuemu/plain" 'cuda-emulated: the emulator failed' \
        STEPD_CUEMU=broken=1
    # Several devices, and a NCCL that is none, or lacks what is called.
    mkdir "$tmp/none"
    echo text >"$tmp/none/libnccl.so.2"
    says cuda-emulated "$cuemu/plain" 'several GPUs need NCCL: ' \
        STEPD_CUEMU_RANKS=0/2 LD_LIBRARY_PATH="$tmp/none"
    says cuda-emulated "$cuemu/plain" 'libnccl.so.2 lacks ncclGetVersion' \
        STEPD_CUEMU_RANKS=0/2 LD_LIBRARY_PATH="$cuemu/lacking"
    out=$(STEPD_PLUGIN_DIR=$cuemu/plain LD_LIBRARY_PATH=$tmp/none \
        "$probe" cuda-emulated)
    [[ $out == 'cuda-emulated: emulated'* ]] || { echo "$out"; status=1; }
    out=$(STEPD_PLUGIN_DIR=$cuemu/plain "$probe" cuda-emulated)
    [[ $out == 'cuda-emulated: emulated'* ]] || { echo "$out"; status=1; }
fi
out=$(STEPD_PLUGIN_DIR=$tmp "$probe" auto)
[[ $out == cpu* && $out == *'cuda: '*'not installed'* ]] ||
    { echo "auto: $out"; status=1; }

# The daemon: what auto says, and that it goes on; what cuda says, and does not.
# checks STATUS BACKEND WORDS [ENV...]
checks()
{
    local want=$1 backend=$2 words=$3 out got=0

    shift 3
    out=$(env "$@" "$build/daemon/stepd" --check --set "backend=$backend" \
        --model "$top/tests/data/step-tiny" 2>&1) || got=$?
    if [ "$got" -ne "$want" ] || [[ $out != *"$words"* ]]; then
        echo "backend = $backend: status $got, not $want, or no \"$words\" in:"
        echo "$out"
        status=1
    fi
}
if [ -x "$build/daemon/stepd" ]; then
    auto='note: backend = auto: the CPU computes: cuda: '
    checks 0 auto "$auto" STEPD_PLUGIN_DIR="$tmp"
    checks 69 cuda 'problem: backend: cannot use cuda: ' STEPD_PLUGIN_DIR="$tmp"
    if [ -e "$cuemu/plain/stepd-cuda-emulated.so" ]; then
        mkdir "$tmp/one"
        ln -s "$cuemu/plain/stepd-cuda-emulated.so" "$tmp/one/stepd-cuda.so"
        checks 0 auto 'a start would serve' STEPD_PLUGIN_DIR="$tmp/one"
        checks 0 auto "${auto}the emulator was told to have no device" \
            STEPD_PLUGIN_DIR="$tmp/one" STEPD_CUEMU=absent=1
        checks 0 auto 'note: backend = auto: the CPU computes: cuda-emulated: ' \
            STEPD_PLUGIN_DIR="$tmp/one" STEPD_CUEMU=mem=1
        checks 0 auto "${auto}the emulator failed" \
            STEPD_PLUGIN_DIR="$tmp/one" STEPD_CUEMU=broken=1
        checks 69 cuda 'problem: backend: cannot use cuda: the emulator failed' \
            STEPD_PLUGIN_DIR="$tmp/one" STEPD_CUEMU=broken=1
        held='others hold 2048 of 2048 MiB, and memory_utilization is 0.97'
        checks 0 auto "$auto$held" \
            STEPD_PLUGIN_DIR="$tmp/one" STEPD_CUEMU=held=2048
        checks 69 cuda "problem: backend: cannot use cuda: $held" \
            STEPD_PLUGIN_DIR="$tmp/one" STEPD_CUEMU=held=2048
        # A budget, of which the model is larger.
        checks 65 cuda 'problem: not enough memory: weights take ' \
            STEPD_PLUGIN_DIR="$tmp/one" STEPD_CUEMU=held=1986
        checks 65 cuda 'problem: ' STEPD_PLUGIN_DIR="$tmp/one" STEPD_CUEMU=mem=1
    fi
fi

# Each answer of NVIDIA's runtime, where its headers are.
nvcc=$(sed -n 's/^NVCC = //p' "$build/Makefile")
nvcc=${nvcc:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
include=$(dirname "$nvcc")/../include
if [ -e "$include/cuda_runtime_api.h" ]; then
    gcc -std=gnu17 -D_GNU_SOURCE -ffunction-sections -Wl,--gc-sections \
        "-I$top" -isystem "$include" "$top/tests/cuemu/rt_check.c" \
        -o "$tmp/rt_check" && "$tmp/rt_check" || status=1
else
    echo "no CUDA headers beside $nvcc: what rt.c says was not tried"
fi

plugin=$build/kernels/cuda/stepd-cuda.so
if [ -e "$plugin" ]; then
    if ldd "$plugin" | grep -E 'stdc\+\+|libgcc_s|libcuda\.'; then
        echo "above: what the plugin must not need"
        status=1
    fi
    exported=$(nm -D --defined-only "$plugin" | awk '$2 != "A" { print $3 }')
    [ "$exported" = kern_plugin ] || { echo "exports: $exported"; status=1; }
    if ! [ -e /dev/nvidiactl ]; then
        says cuda "$build/kernels/cuda" 'driver' A=
        out=$(STEPD_PLUGIN_DIR=$build/kernels/cuda "$probe" auto)
        [[ $out == cpu*'driver'* ]] || { echo "auto: $out"; status=1; }
        stubs=$(find -L "$(dirname "$(command -v nvcc ||
            echo /usr/local/cuda/bin/nvcc)")/.." -path '*stubs/libcuda.so' \
            2>/dev/null | head -n 1 || :)
        if [ -n "$stubs" ]; then
            ln -s "$stubs" "$tmp/libcuda.so.1"
            says cuda "$build/kernels/cuda" 'stub' LD_LIBRARY_PATH="$tmp"
        fi
    fi
fi
exit "$status"
