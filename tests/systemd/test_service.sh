#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The units as shipped: the first connect starts the service (fr_76, fr_81,
# fr_88), READY is said once, the status line says what goes on, the journal
# has fields, and stopping leaves the socket as it was.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

READY=5a0d7be0c9e44e0f8a4c2f1b6d93e8a7
START=c1ea9c3f4b0d4a6d9c3b0a6f5d2e7b14
REQUEST=e7c8f1d25a3b4f7c9b60d4a18f2e3c59

systemd-analyze verify stepd.service stepd.socket 'stepd@x.service' \
    'stepd@x.socket' 2>&1 | grep -v "Command 'man " >"$tmp/verify" || :
grep -i 'stepd' "$tmp/verify" && fail "systemd-analyze verify has words"

systemctl start stepd.socket
[ "$(stat -c '%a %U %G %F' "$SOCK")" = "660 stepd stepd socket" ] ||
    fail "the socket: $(stat -c '%a %U %G %F' "$SOCK")"
[ "$(stat -c '%a %U' /run/stepd)" = "755 root" ] || fail "/run/stepd"
inode=$(stat -c %i "$SOCK")
expect_prop ActiveState inactive

# The first connect starts it, and is answered.
user ann stepd
as ann "$BIN/stepctl" -s "$SOCK" chat --temperature 0 --no-thinking \
    'What is the capital of Kenya?' >"$tmp/answer"
[ -s "$tmp/answer" ] || fail "no answer"
expect_prop ActiveState active
expect_prop NRestarts 0
until_true is_prop StatusText "Serving step-tiny"
[ "$(stat -c '%a %U' /var/lib/stepd)" = "700 stepd" ] || fail "/var/lib/stepd"

# The journal: messages by id, and what a request took, by field.
[ "$(n_logged MESSAGE_ID=$START)" = 1 ] || fail "start is not in the journal"
[ "$(n_logged MESSAGE_ID=$READY)" = 1 ] || fail "ready is not in the journal"
until_true has_logged MESSAGE_ID=$REQUEST "UID=$(id -u ann)"
journalctl -q -o json MESSAGE_ID=$REQUEST >"$tmp/request"
"$PYTHON3" - "$tmp/request" <<'END'
import json, sys
e = json.loads(open(sys.argv[1]).readline())
assert int(e["REQUEST_ID"]) >= 1 and int(e["TOKENS"]) > 8, e
assert int(e["DURATION_MS"]) >= 0 and e["PRIORITY"] == "6", e
assert e["_SYSTEMD_UNIT"] == "stepd.service", e
assert "Kenya" not in json.dumps(e)
END

# Stopping: the socket is the unit's and stays; a client starts it again.
systemctl stop stepd.service
[ "$(stat -c %i "$SOCK")" = "$inode" ] || fail "the socket was made anew"
expect_prop Result success
ready
[ "$(n_logged MESSAGE_ID=$READY)" = 2 ] || fail "READY"
expect_clean_run

# Ended for want of work, it is started again by who comes next.
conf idle_exit=1s
systemctl restart stepd.service
until_true is_prop ActiveState inactive
expect_prop Result success
expect_prop ActiveState active stepd.socket
ready
conf
systemctl stop stepd.socket stepd.service
expect_clean_run

# Instances: a configuration, a socket and a state folder each.
for i in a b; do
    echo "model = $MODEL" >"$(dirname "$CONF")/$i.conf"
    systemctl start "stepd@$i.socket"
    SOCK=/run/stepd/$i.sock
    ready
    [ "$(stat -c '%a %U' "/var/lib/stepd/$i")" = "700 stepd" ] || fail "state"
done
"$BIN/stepctl" -s a ping | has ready || fail "-s INSTANCE"
systemctl stop 'stepd@a.service' 'stepd@a.socket'
"$BIN/stepctl" -s b ping | has ready || fail "b went with a"
[ ! -e /run/stepd/a.sock ] || fail "a.sock is left"
