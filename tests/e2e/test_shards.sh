#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Shards that change under the daemon. Renamed over: nobody notices. Cut or
# written in place: what runs ends as `corrupt`, and the daemon with status 70
# and the file's name; where a cut page is needed before that can be seen, the
# handler of SIGBUS says file and offset.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack

# start_copy NAME [ARG...]: a daemon on a copy of the model of its own.
start_copy()
{
    cp -r "$MODEL" "$tmp/$1.model"
    chmod -R u+w "$tmp/$1.model"
    shard=$tmp/$1.model/model-00002.safetensors
    start_stepd -n "$1" --model "$tmp/$1.model" "${@:2}"
}

# change HOW FILE
change()
{
    case $1 in
    rewritten) printf 'x' | dd of="$2" bs=1 seek=600000 conv=notrunc status=none ;;
    cut) truncate -s -1 "$2" ;;
    halved) truncate -s 4096 "$2" ;;
    esac
}

# ---- renamed over: the opened file is the one that serves
start_copy renamed
ctl complete --temperature 0 --max-tokens 8 'Once upon a time' >"$tmp/before"
head -c 1000 /dev/urandom >"$shard.new"
mv "$shard.new" "$shard"
ctl complete --temperature 0 --max-tokens 8 'Once upon a time' >"$tmp/after"
cmp "$tmp/before" "$tmp/after" || fail 'another answer after a rename'
[ -s "$tmp/after" ] || fail 'no answer'
stop_stepd renamed

# ---- changed while a step runs, and while the daemon is idle
for how in rewritten cut; do
    start_copy "$how" --set test_hold_steps=yes
    py "$sock" "$stepd_pid" "$shard" "$how" <<'END'
import os
import signal
import sys
from client import Client, assert_error

path, pid, shard, how = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
c = Client(path)
asked = c.submit("generate", prompt="Once upon a time", max_tokens=500)
assert c.recv()["event"] == "accepted"
with Client(path) as other:  # until the step has begun, in which it is held
    while other.last("status")["running"] != 1:
        pass
with open(shard, "r+b") as f:
    if how == "cut":
        f.truncate(os.path.getsize(shard) - 1)
    else:
        f.seek(600000)
        f.write(b"x")
os.kill(pid, signal.SIGUSR2)
e = c.recv()
while e["event"] in ("progress", "delta"):
    e = c.recv()
assert_error(e, "corrupt", request_id=asked)
assert "model-00002.safetensors" in e["message"], e
assert c.at_end()
END
    reap_stepd "$how" 70
    wait_for_line "$tmp/$how.log" 'giving up \(status 70\): .*model-00002'
done
for how in rewritten cut halved; do
    start_copy "idle-$how"
    ctl complete --max-tokens 2 Once >/dev/null 2>&1
    change "$how" "$shard"
    # Seen before this request comes (at the end of the last step: no daemon
    # any more) or when it does, but never by a fault.
    status=0
    ctl complete --max-tokens 2 Once >/dev/null 2>"$tmp/err" || status=$?
    case $status in
    65) grep -q 'model-00002.safetensors' "$tmp/err" || fail "$(cat "$tmp/err")" ;;
    69) ;;
    *) fail "status $status: $(cat "$tmp/err")" ;;
    esac
    reap_stepd "idle-$how" 70
    wait_for_line "$tmp/idle-$how.log" 'giving up \(status 70\): .*model-00002'
done

# ---- most of a shard gone in the middle of a step: no answer is possible
start_copy gone --set test_hold_steps=yes
py "$sock" "$stepd_pid" "$shard" <<'END'
import os
import signal
import sys
from client import Client, Closed

path, pid, shard = sys.argv[1], int(sys.argv[2]), sys.argv[3]
c = Client(path)
c.submit("generate", prompt="Once upon a time", max_tokens=500)
assert c.recv()["event"] == "accepted"
with Client(path) as other:  # until the step has begun, in which it is held
    while other.last("status")["running"] != 1:
        pass
os.truncate(shard, 4096)
os.kill(pid, signal.SIGUSR2)
try:
    e = c.recv()
    raise AssertionError(f"an answer out of pages that are gone: {e}")
except (Closed, ConnectionError):
    pass
END
reap_stepd gone 70
wait_for_line "$tmp/gone.log" \
    'SIGBUS: model-00002.safetensors: offset [0-9]+ cannot be read'
