#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The soak (soak.py), for SOAK_SECONDS: a short one here, `make soak` runs ten
# minutes. Small pools and small limits, so that pre-emption, eviction, pauses
# and refusals are daily bread.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
# AddressSanitizer keeps what was freed, 256 MB by default: no leak of ours.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=4
mkdir "$tmp/state"
export STATE_DIRECTORY=$tmp/state
start_stepd --set max_model_len=1024 --set kv_memory="${SOAK_KV:-14M}" \
    --set max_seqs=12 --set max_batched_tokens=256 --set max_output_soft=4K \
    --set max_in_flight_per_uid=66 --set kv_share_per_owner=0.8 \
    --set max_output_hard=64K --set step_target_ms=20
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$srcdir/tests/e2e "$PYTHON3" \
    "$srcdir/tests/e2e/soak.py" "$sock" "$stepd_pid" "${SOAK_SECONDS:-5}" \
    "${SOAK_CLIENTS:-64}" ${SOAK_SEED:+"$SOAK_SEED"}
if grep ' error: ' "$tmp/stepd.log"; then
    fail "the daemon complained"
fi
stop_stepd
