#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# accept, recv and send of the daemon fail again and again: each costs a client
# its connection or some time, and nobody anything else. (Memory: see
# test_no_memory.py and tests/daemon/test_core_memory.c; the library:
# tests/client/test_client_fail.c.)

# shellcheck disable=SC2119 # functions with arguments, called without
# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires strace -D -f -qq -o /dev/null -e inject=chdir:error=EIO true
cd "$tmp"
real=$STEPD
# The tracer stands beside the daemon, which keeps its process id. A tracer and
# a sanitizer's leak check exclude each other.
export ASAN_OPTIONS=detect_leaks=0

# failing CALL ERROR FIRST+STEP: a daemon in which that call fails then.
failing()
{
    STEPD=$tmp/stepd.$1.$2
    printf '#!/bin/sh\nexec strace -D -f -qq -o "%s" -e trace=%s %s %s "$@"\n' \
        "$tmp/trace.$1.$2" "$1" "-e inject=$1:error=$2:when=$3" "$real" >"$STEPD"
    chmod +x "$STEPD"
    start_stepd -n "$1.$2"
}

while read -r call error when; do
    failing "$call" "$error" "$when"
    good=0
    for i in $(seq 12); do
        status=0
        ctl tokenize "text $i" >out 2>err || status=$?
        case $status in
        0) good=$((good + 1)) ;;
        69) grep -q '^stepctl: disconnected: ' err || fail "$(cat err)" ;;
        *) fail "$call, $error: exit status $status ($(cat err))" ;;
        esac
    done
    [ "$good" -ge 1 ] || fail "$call, $error: nobody was served"
    stop_stepd "$call.$error"
    grep -q INJECTED "trace.$call.$error" || fail "$call, $error: never failed"
done <<'END'
accept4 EMFILE 2+4
accept4 ECONNABORTED 2+3
accept4 EINTR 2+3
recvfrom ECONNRESET 6+7
recvfrom EINTR 3+5
sendto EPIPE 6+5
sendto ENOBUFS 7+5
sendto EINTR 3+4
END
