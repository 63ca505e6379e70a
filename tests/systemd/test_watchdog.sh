#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The watchdog (fr_85): an idle daemon lives, one that works lives, and one whose
# kernel hangs is killed and started again.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

# Three intervals are six pings: as many changes of the time of the last one.
lives_for()
{
    local n=0 last now

    last=$(prop WatchdogTimestampMonotonic)
    until [ "$n" -eq "$1" ]; do
        is_prop ActiveState active || fail "it does not live"
        now=$(prop WatchdogTimestampMonotonic)
        [ "$now" = "$last" ] || n=$((n + 1))
        last=$now
    done
}

dropin stepd.service WatchdogSec=1 RestartSec=0
systemctl start stepd.socket stepd.service
ready
pid=$(main_pid)
lives_for 6

# A request that runs, and one that may not: its reader takes nothing.
ctl complete --max-tokens 200 x >/dev/null &
job=$!
mkfifo "$tmp/fifo"
exec 9<>"$tmp/fifo"
ctl complete --json --ids --logprobs 20 --max-tokens 400 y >&9 2>/dev/null &
slow=$!
lives_for 6
wait "$job" || fail "the request"
kill "$slow" 2>/dev/null || :
wait "$slow" || :
[ "$(main_pid)" = "$pid" ] || fail "it was killed"
systemctl stop stepd.service

# A kernel that hangs: a step that never passes.
conf test_hold_steps=yes
ready
pid=$(main_pid)
expect_status 69 ctl complete --max-tokens 4 x
until_true is_prop NRestarts 1
logged 'Watchdog timeout' || fail "another cause"
another_serves()
{
    [ "$(main_pid)" != "$pid" ]
}
until_true another_serves
ready
expect_clean_run
