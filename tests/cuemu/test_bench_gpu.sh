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
    'mlp_up, shared' 'linear down, shared' 'expert_up' 'expert_down'; do
    [ "$(grep -c "^| $kernel  *| " "$tmp/table")" -eq 4 ] ||
        { echo "$kernel: not four lines"; status=1; }
done
[ "$status" -eq 0 ] || cat "$tmp/table"

# Bounds and shares on a device whose sheet is known.
{
    printf 'device\tcuda: NVIDIA H200\n'
    printf 'sizes\t4096 64 8 288 8 1280 1280 128896\n'
    printf 'linear o\t1\t20.000\n'
} | "${PYTHON3:-python3}" "$top/tests/cuemu/roofline.py" \
    "$top/tests/data/config-step-3.7-flash.json" --measured >"$tmp/table"
# 4096 x 8192 x 2 bytes at 4.8 TB/s
grep -q '13\.98 *| 70%' "$tmp/table" || { cat "$tmp/table"; status=1; }
exit "$status"
