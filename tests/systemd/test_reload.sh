#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Reload, by the unit and by SIGHUP: what can change live does, anything else is
# refused with key, file and line and changes nothing, and the service is never
# left in "reloading". drain and drain --off, too, which keep the process.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

user ann stepd
systemctl start stepd.socket
ready
pid=$(main_pid)
as ann "$BIN/stepctl" -s "$SOCK" tokenize x >/dev/null || fail "ann may not"

# Live: a list; who is off it now is told so, also on an open connection.
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$srcdir/tests/e2e \
    as ann "$PYTHON3" - "$SOCK" "$tmp/open" >"$tmp/ann" 2>&1 <<'END' &
import sys
from client import Client
c = Client(sys.argv[1])
print("connected", flush=True)
e = c.recv()
assert e["code"] == "denied", e
print("denied")
END
ann=$!
until_true grep -q connected "$tmp/ann"
conf allow_users=root served_model_name=other
systemctl reload stepd
until_true is_prop StatusText "Serving other"
expect_prop ActiveState active
wait "$ann" || fail "$(cat "$tmp/ann")"
expect_status 77 as ann "$BIN/stepctl" -s "$SOCK" tokenize x
logged 'reload: changed: served_model_name, allow_users' || fail "changes"
ctl reload >"$tmp/changed"
[ ! -s "$tmp/changed" ] || fail "nothing has changed: $(cat "$tmp/changed")"
expect_status 77 as ann "$BIN/stepctl" -s "$SOCK" reload

# Not live: named, with file and line, and nothing at all is taken over.
conf model=/srv/another allow_users=ann
expect_status 1 systemctl reload stepd
expect_status 69 ctl reload 2>"$tmp/err"
grep -q "$CONF:1: model cannot change" "$tmp/err" || fail "$(cat "$tmp/err")"
expect_status 77 as ann "$BIN/stepctl" -s "$SOCK" tokenize x

# Wrong: every problem is in the log, the first one in the answer.
conf max_queue=none drain_timeout=x
expect_status 64 ctl reload 2>"$tmp/err"
grep -q "$CONF:2: max_queue" "$tmp/err" || fail "$(cat "$tmp/err")"
logged "$CONF:3: drain_timeout" || fail "the second problem is not in the log"
expect_prop ActiveState active
ctl tokenize x >/dev/null || fail "it serves no more"

# SIGHUP does the same.
conf served_model_name=third
kill -HUP "$pid"
until_true is_prop StatusText "Serving third"
until_true is_prop ActiveState active
as ann "$BIN/stepctl" -s "$SOCK" tokenize x >/dev/null || fail "ann may again"

# A drain keeps the process; --off ends it.
ctl drain
until_true is_prop StatusText "Draining: 0 requests in flight"
expect_status 75 ctl complete --max-tokens 1 x
ctl drain --off
until_true is_prop StatusText "Serving third"
ctl complete --max-tokens 1 x >/dev/null
[ "$(main_pid)" = "$pid" ] || fail "another process serves"
