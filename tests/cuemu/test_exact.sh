#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# exact = yes and no: with a stand-in for cuBLASLt, which products go there; with
# none at all, what a daemon's log says. exact = yes does not so much as load it.

# shellcheck source-path=SCRIPTDIR source=../e2e/functions.sh
. "$(dirname "$0")/../e2e/functions.sh"

export STEPD_PLUGIN_DIR=$builddir/tests/cuemu/plain STEPD_CUEMU=mem=512
[ -e "$STEPD_PLUGIN_DIR/stepd-cuda-emulated.so" ] ||
    skip 'no CUDA emulator in this build'

if [ -x "$builddir/tests/kernels/test_lt" ]; then
    LD_LIBRARY_PATH=$builddir/tests/cuemu/fake KT_BACKEND=cuda-emulated \
        "$builddir/tests/kernels/test_lt"
fi

# A library that is none: whatever this machine has, the loader finds it first.
mkdir "$tmp/none"
echo text >"$tmp/none/libcublasLt.so.13"
export LD_LIBRARY_PATH=$tmp/none
for exact in yes no; do
    start_stepd -n "$exact" --backend cuda-emulated --set "exact=$exact"
    ctl chat --temperature 0 'What is 7 plus 8?' >"$tmp/$exact"
    case $exact in
    yes) ! grep cuBLASLt "$tmp/$exact.log" || fail 'exact = yes looked for it' ;;
    no) has 'exact = no: own kernels for want of cuBLASLt: .*file too short' \
        <"$tmp/$exact.log" || fail 'the log does not say that it is missing' ;;
    esac
    stop_stepd "$exact"
done
diff "$tmp/yes" "$tmp/no" || fail 'own kernels, and other answers'
