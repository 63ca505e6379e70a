#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The whole forward pass of the micro checkpoints, MTP included, through the
# emulated CUDA backend against the golden files of the independent reference;
# and what a step costs the host: graphs, waits, kernels.

# shellcheck source=tests/cuemu/functions.sh
. "$(dirname "$0")/functions.sh"

[ -x "$build/tests/daemon/test_forward" ] ||
    { echo "SKIP: test_forward is not built (no cmocka)"; exit 77; }
over plain tests/daemon/test_forward
over plain tests/daemon/test_replay
over plain tests/daemon/test_stream
over plain tests/daemon/test_compact
