#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The end-to-end suite against the service as shipped, in its sandbox (fr_88),
# by STEPD_SOCKET. Scripts that need a daemon of their own skip, and say so.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

systemctl start stepd.socket
export STEPD_SOCKET=$SOCK WAIT_SECONDS
passed=0
cd "$builddir"
for t in "$srcdir"/tests/e2e/test_*.sh; do
    case $(basename "$t") in
    test_functions.sh | test_socket.sh)
        echo "SKIP: $(basename "$t"): about daemons of its own"
        continue
        ;;
    esac
    # A fresh one each: scripts look at its counters.
    systemctl restart stepd.service
    ready
    STEPD_PID=$(main_pid)
    export STEPD_PID
    status=0
    timeout 60 bash "$t" >"$tmp/log" 2>&1 || status=$?
    case $status in
    0) passed=$((passed + 1)) ;;
    77) grep -h '^SKIP: ' "$tmp/log" || echo "skipped: $(basename "$t")" ;;
    *)
        cat "$tmp/log" >&2
        fail "$(basename "$t") in the unit: status $status"
        ;;
    esac
    [ "$(main_pid)" = "$STEPD_PID" ] || fail "$(basename "$t") lost the daemon"
    expect_prop NRestarts 0
done
echo "$passed end-to-end scripts passed in the sandboxed unit"
[ "$passed" -ge 5 ] || fail "too few of them ran"
