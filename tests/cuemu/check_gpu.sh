#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# make check-gpu: on a device what make check proves on the host. Every op
# against ref (the whole numbers bit for bit), graphs and the memory budget, the
# micro checkpoints and step-tiny against their golden files, drafts and
# verification, and a daemon with backend = cuda. It skips where no device works,
# and says why.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
build=$(cd "${builddir:-.}" && pwd)
export STEPD_PLUGIN_DIR=$build/kernels/cuda KT_BACKEND=cuda
tests='kernels/test_gpu kernels/test_lt kernels/test_quant kernels/test_rows kernels/test_norm
    kernels/test_compact daemon/test_compact
    kernels/test_qkv kernels/test_router kernels/test_accept
    kernels/test_linear kernels/test_expert kernels/test_attn
    kernels/test_sample daemon/test_forward daemon/test_replay daemon/test_mtp'

if [ ! -e "$STEPD_PLUGIN_DIR/stepd-cuda.so" ]; then
    echo "SKIP: check-gpu: the CUDA plugin is not part of this build" \
        "(configure found no nvcc, or --without-cuda)"
    exit 0
fi
if ! why=$("$build/tests/cuemu/open_backend" cuda); then
    echo "SKIP: check-gpu: $why"
    exit 0
fi
echo "check-gpu: $why"
failed=0
for t in $tests; do
    if [ ! -x "$build/tests/$t" ]; then
        echo "SKIP: $t is not built (no cmocka)"
    elif timeout -k 10 600 "$build/tests/$t" >"$build/tests/$t.gpu.log" 2>&1; then
        echo "PASS: $t"
    else
        tail -n 30 "$build/tests/$t.gpu.log"
        echo "FAIL: $t ($build/tests/$t.gpu.log)"
        failed=$((failed + 1))
    fi
done
status=0
STEPD_TEST_BACKEND=cuda bash "$top/tests/cuemu/test_daemon.sh" || status=$?
case $status in
0) echo "PASS: cuemu/test_daemon.sh with backend = cuda" ;;
*)
    echo "FAIL: cuemu/test_daemon.sh with backend = cuda"
    failed=$((failed + 1))
    ;;
esac
echo "check-gpu: $failed failed"
[ "$failed" -eq 0 ]
