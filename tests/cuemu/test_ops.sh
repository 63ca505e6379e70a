#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Every op of the CUDA backend against ref, on the host: the same programs that
# test the CPU backend, over the emulator.

# shellcheck source=tests/cuemu/functions.sh
. "$(dirname "$0")/functions.sh"

ops='gpu nccl quant compact rows norm qkv router accept linear expert attn sample'
status=0
for b in $builds; do
    # How often weights are read, the race build alone knows.
    all=$ops
    [ "$b" != race ] || all="$ops reads"
    for op in $all; do
        # The checked builds take long on the widest sweeps: one schedule.
        n=$KT_SCHEDULES
        case $b-$op in
        race-expert | race-attn | race-sample | asan-expert) n=1 ;;
        esac
        [ -x "$build/tests/kernels/test_$op" ] ||
            { echo "SKIP: test_$op is not built (no cmocka)"; exit 77; }
        if ! out=$(KT_SCHEDULES=$n over "$b" "tests/kernels/test_$op" 2>&1); then
            echo "$out" | tail -n 30
            echo "FAILED: test_$op over the $b build"
            status=1
        fi
    done
done
# Kernels that need subnormals would be other kernels under -use_fast_math. The
# widest sweeps only in make check-cuemu.
for op in $ops; do
    case ${TEST_CUEMU_ALL-}-$op in
    -attn | -gpu | -sample) continue ;;
    esac
    STEPD_CUEMU_FTZ=1 KT_SCHEDULES=1 over plain "tests/kernels/test_$op" \
        >"$cuemu/ftz.log" 2>&1 || {
        tail -n 30 "$cuemu/ftz.log"
        echo "FAILED: test_$op with subnormals flushed"
        status=1
    }
done
exit "$status"
