#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Restarts refuse nobody: 20 of them, as fast as they go, under clients that
# connect all the time. Every connect succeeds, and every request that came in
# during a restart is answered, by this instance or by the next.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

cat >"$tmp/knock.py" <<'END'
# Connects again and again until told to stop (a file), and counts.
import collections
import os
import sys
from client import Client, Closed

path, stop = sys.argv[1:]
seen = collections.Counter()
while not os.path.exists(stop):
    try:
        c = Client(path, hello=False)
    except OSError as e:
        print("refused:", e)
        seen["refused"] += 1
        continue
    seen["connects"] += 1
    try:
        c.say_hello()
        e = list(c.request("generate", prompt="a", max_tokens=2, temperature=0))
        last = e[-1]
        seen[last.get("code") or last["finish_reason"]] += 1
    except (Closed, OSError):
        seen["closed"] += 1
    c.close()
print(dict(seen))
assert seen["refused"] == 0, seen
assert seen["length"] + seen["stop"] > 20, seen
END

export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$srcdir/tests/e2e
systemctl start stepd.socket
ready
inode=$(stat -c %i "$SOCK")
knockers=()
for i in 1 2 3; do
    "$PYTHON3" "$tmp/knock.py" "$SOCK" "$tmp/stop" >"$tmp/knock.$i" 2>&1 &
    knockers+=($!)
done
for ((i = 0; i < 20; i++)); do
    systemctl restart stepd.service
    expect_prop Result success
done
ready
touch "$tmp/stop"
for pid in "${knockers[@]}"; do
    wait "$pid" || fail "$(cat "$tmp"/knock.?)"
done
[ "$(stat -c %i "$SOCK")" = "$inode" ] || fail "the socket was made anew"
[ "$(n_logged MESSAGE_ID=5a0d7be0c9e44e0f8a4c2f1b6d93e8a7)" = 21 ] ||
    fail "READY was not said 21 times"
echo "20 restarts:"
cat "$tmp"/knock.?
expect_clean_run

# What runs is finished, what comes meanwhile waits for the next instance. The
# running one is held in a step until the stop has begun.
conf test_hold_steps=yes
systemctl restart stepd.service
ready
conf
ctl complete --max-tokens 5 --json --temperature 0 a >"$tmp/long" &
long=$!
until_true grep -q accepted "$tmp/long"
systemctl stop --no-block stepd.service
until_true is_prop StatusText "Stopping: 1 requests in flight"
ctl complete --max-tokens 2 b >/dev/null 2>"$tmp/next" &
next=$!
systemctl kill --kill-who=main -s USR2 stepd.service
wait "$long" || fail "the running request: $(tail -n 1 "$tmp/long")"
tail -n 1 "$tmp/long" | tr -d ' ' | has '"finish_reason":"length"' ||
    fail "it was not finished: $(tail -n 1 "$tmp/long")"
wait "$next" || fail "who came meanwhile was not served: $(cat "$tmp/next")"

# A pinned session is saved by the stop and goes on after the start: in each
# turn exactly as much of it is reused as where nothing was restarted.
conf session_disk_floor=0
systemctl restart stepd.service
ready
cached()
{
    "$PYTHON3" -c '
import json, sys
print(json.loads(open(sys.argv[1]).read().splitlines()[-1])["usage"][sys.argv[2]])' \
        "$tmp/turn" "$1"
}
turn()
{
    ctl chat --session "$name" --temperature 0 --json "$@" \
        >"$tmp/turn" 2>"$tmp/err" || fail "$(cat "$tmp/err")"
}
talk()
{
    local i

    name=$1
    turn 'What is the capital of Kenya?'
    ctl sessions pin "$name" >/dev/null
    for i in 1 2 3 4 5 6; do
        if [ "$name" = kept ]; then
            systemctl restart stepd.service
            ready
        fi
        turn --append 'What is 7 plus 8?'
        cached cached_tokens
    done
}
talk control >"$tmp/control"
ctl sessions drop control >/dev/null
systemctl restart stepd.service
ready
talk kept >"$tmp/kept"
# shellcheck disable=SC2046 # words, on purpose
echo "cached tokens, without and with restarts:" $(cat "$tmp/control") and \
    $(cat "$tmp/kept")
[ "$(head -n 1 "$tmp/kept")" -gt 0 ] || fail "nothing was kept"
cmp -s "$tmp/control" "$tmp/kept" || fail "a restart lost some of it"
[ -z "$(find /var/lib/stepd -perm /077 ! -path /var/lib/stepd)" ] ||
    fail "others may read: $(ls -lR /var/lib/stepd)"
expect_clean_run
