#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The example programs of libstepclient do what their first comment says, with
# a daemon and when there is none.

# shellcheck disable=SC2119 # functions with arguments, called without
# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

cd "$tmp"
bin=$builddir/client
export STEPD_SOCKET=$tmp/stepd.sock

for name in blocking poll ev; do
    expect_status 1 "$bin/example_$name" </dev/null >out 2>err
    grep -q '^no daemon listens there$' err || fail "$name: $(cat err)"
done

start_stepd
export STEPD_SOCKET=$sock
ctl chat --temperature 0 --max-tokens 200 'What is 7 plus 8?' >want

"$bin/example_blocking" 'What is 7 plus 8?' >out 2>err || fail "$(cat err)"
cmp -s want out || fail "blocking: '$(cat out)' instead of '$(cat want)'"
grep -Eq '^[0-9]+ tokens, ended by stop$' err || fail "$(cat err)"

# Three questions over one connection, each answered under its number.
printf '%s\n' 'What is 7 plus 8?' 'What is 2 plus 2?' 'Who are you?' |
    "$bin/example_poll" >out 2>err || fail "$(cat err)"
[ ! -s err ] || fail "poll: $(cat err)"
for number in 1 2 3; do
    grep -Eq "^$number \[(stop|length)\] ." out || fail "poll: $(cat out)"
done

# The library is one watcher of somebody else's loop, whose timer runs on.
"$bin/example_ev" 'What is 7 plus 8?' >out 2>err || fail "$(cat err)"
[ -s out ] || fail "ev: no answer"
grep -Eq '^[0-9]+ ticks of our own meanwhile$' err || fail "$(cat err)"
stop_stepd

# Held before its first step, a request runs until it is cancelled.
start_stepd -n held --set test_hold_steps=yes
export STEPD_SOCKET=$sock
mkfifo lines
"$bin/example_poll" <lines >out 2>err &
poll=$!
exec {fd}>lines
printf 'one\ncancel 1\n' >&"$fd"
wait_for_line out '^1 \[cancelled\] $'
exec {fd}>&-
wait "$poll" || fail "poll: $(cat err)"

"$bin/example_ev" Hi >out 2>err &
ev=$!
until ctl status | has '^running  *1$'; do
    kill -0 "$ev" 2>/dev/null || fail "ev ended: $(cat err)"
done
kill -INT "$ev"
wait "$ev" || fail "ev was interrupted: status $? ($(cat err))"

# A daemon that goes away.
"$bin/example_ev" Hi >out 2>err &
ev=$!
until ctl status | has '^running  *1$'; do
    kill -0 "$ev" 2>/dev/null || fail "ev ended: $(cat err)"
done
kill -KILL "${stepd_pids[held]}"
reap_stepd held 137
expect_status 1 wait "$ev"
grep -q '^the connection to the daemon is gone$' err || fail "$(cat err)"
