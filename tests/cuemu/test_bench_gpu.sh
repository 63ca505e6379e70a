#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# What make bench-gpu runs on a device runs here on the emulator, with small
# sizes: every kernel has a line, and none of the steps was anything but a replay
# of a graph. The times mean nothing.

# shellcheck source=tests/cuemu/functions.sh
. "$(dirname "$0")/functions.sh"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0
STEPD_PLUGIN_DIR=$cuemu/plain "$build/tests/bench/bench_gpu" cuda-emulated small \
    >"$tmp/lines"
"${PYTHON3:-python3}" "$top/tests/cuemu/roofline.py" \
    "$top/tests/data/config-step-3.7-flash.json" --measured \
    <"$tmp/lines" >"$tmp/table"
for kernel in 'linear q k v gate' 'linear o' 'linear head' 'router' 'norm' \
    'qkv' 'attn' 'attn, window' 'sample' 'expert_up' 'expert_down' \
    'mlp_up, shared' 'linear down, shared' 'linear q k v gate, compact' \
    'linear o, compact' 'linear head, compact' 'mlp_up, shared, compact' \
    'linear down, shared, compact'; do
    want=4 # 1, 4, 8 and 32 rows; in the first three the shared expert goes along
    [[ $kernel != *shared ]] || want=1
    [ "$(grep -c "^| $kernel  *| " "$tmp/table")" -eq "$want" ] ||
        { echo "$kernel: not $want lines"; status=1; }
done
[ "$status" -eq 0 ] || cat "$tmp/table"

# Bounds and shares on a device whose sheet is known.
{
    printf 'device\tcuda: NVIDIA H200\n'
    printf 'sizes\t4096 64 8 288 8 1280 1280 128896 4096\n'
    printf 'linear o\t1\t20.000\n'
    printf 'linear o, compact\t1\t20.000\n'
    printf 'attn\t1\t7.000\n'
    printf 'attn, window\t1\t1.000\n'
    printf 'expert_up\t1\t20.000\n'
} | "${PYTHON3:-python3}" "$top/tests/cuemu/roofline.py" \
    "$top/tests/data/config-step-3.7-flash.json" --measured >"$tmp/table"
# 4096 x 8192 x 2 bytes at 4.8 TB/s, packed 12.03 bits a weight
# 4096 or 512 slots x 2 x 8 heads x 128 x 2 bytes; 8 experts in 4.25 bits and the
# shared one in 16, each 2 x 1280 x 4096
for want in '13\.98 *| 70%' '10\.51 *| 53%' '3\.50 *| 50%' '0\.44 *| 44%' '13\.65 *| 68%'; do
    grep -q "$want" "$tmp/table" || { cat "$tmp/table"; status=1; }
done
exit "$status"
