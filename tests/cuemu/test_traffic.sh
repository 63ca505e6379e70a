#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# How the kernels touch memory, by source line, as the race build counts it over
# the kernels of bench_gpu: 16-byte accesses (weights, rows of x) touch no sector
# of 32 bytes more than their data fill, 16-byte shared ones meet no bank
# conflict; narrow ones, outside of the loops over weights, stay within limits
# that were looked at: attn writes the maximum and the sum of a split into the
# split's own record, a sector each; sample reads four neighbours by four loads, of
# which the cache has three. Part of make check-cuemu.

# shellcheck source=tests/cuemu/functions.sh
. "$(dirname "$0")/functions.sh"

if [ ! -e "$cuemu/race/stepd-cuda-emulated.so" ]; then
    echo "SKIP: the race build of the emulator is not there: make check-cuemu"
    exit 77
fi

# judge: fails, and names them, where lines of the report pass a limit; fewer
# than 40 lines are no report.
judge()
{
    awk '
        !/(wavefronts|sectors) \(best/ { next }
        {
            n++
            bytes = $4
            got = $(NF - 3)
            sub(/\)$/, "", $NF)
            if (bytes == 16 || (bytes == 8 && $2 == "global"))
                limit = 1.05
            else if ($2 == "shared")
                limit = bytes == 8 ? 2 : 4
            else if (bytes == 4)
                limit = $1 ~ /^attn\.cu/ ? 8 : $1 ~ /^sample\.cu/ ? 4 : 1.5
            else
                limit = 4
            if (got > limit * ($NF + 0.06)) { # of one decimal
                print
                bad = 1
            }
            wide += bytes == 16
        }
        END { exit bad || n < 40 || wide < 10 }'
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
STEPD_CUEMU_VERBOSE=1 STEPD_PLUGIN_DIR=$cuemu/race \
    "$build/tests/bench/bench_gpu" cuda-emulated small >"$tmp/report"
status=0
judge <"$tmp/report" || { echo "above: memory is touched more often than that"; status=1; }

# The rules notice a row read across, and a bank conflict.
for line in '  frag.cuh:55 global ld 16 B: 32.0 sectors (best 16.0)' \
    '  tile.cuh:90 shared ld 16 B: 8.00 wavefronts (best 4.00)' \
    '  linear.cu:1 shared st  4 B: 8.00 wavefronts (best 1.00)' \
    '  sample.cu:1 global ld  4 B: 32.0 sectors (best 4.0)' \
    '  sample.cu:1 shared ld  8 B: 4.00 wavefronts (best 1.00)' \
    '  linear.cu:1 global st  4 B: 8.0 sectors (best 4.0)'; do
    if { cat "$tmp/report"; echo "$line"; } | judge >"$tmp/found"; then
        echo "not noticed: $line"
        status=1
    fi
done
exit "$status"
