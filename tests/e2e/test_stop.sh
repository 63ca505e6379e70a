#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The end: SIGTERM lets what runs finish and takes nothing new; drain_timeout
# bounds it; a second SIGTERM stops at once; a stop in the middle of a load does
# not wait for it. In each case every request gets its one end, exit is 0, and the
# socket is gone.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack

# ---- SIGTERM drains
start_stepd -n drain --set test_hold_steps=yes --set drain_timeout=1h
py "$sock" "$stepd_pid" <<'END'
import os
import signal
import sys
from client import Client, assert_error

path, pid = sys.argv[1], int(sys.argv[2])
c = Client(path)
request_id = c.submit("generate", prompt="Once", temperature=0, max_tokens=5)
assert c.recv()["event"] == "accepted"
os.kill(pid, signal.SIGTERM)
while c.last("ping")["state"] != "draining":
    pass
assert_error(c.last("generate", prompt="x"), "draining")
try:
    Client(path)
    raise AssertionError("a new connection was taken")
except (FileNotFoundError, ConnectionRefusedError):
    pass
os.kill(pid, signal.SIGUSR2)
done = list(c.events_of(request_id))[-1]
assert done["event"] == "done" and done["finish_reason"] == "length", done
assert done["usage"]["completion_tokens"] == 5
assert c.at_end()
END
reap_stepd drain 0
[ ! -e "$sock" ] || fail "the socket is left"
[ ! -e "$sock.lock" ] || fail "the lock file is left"

# ---- a second SIGTERM stops at once: the held step never passes
start_stepd -n twice --set test_hold_steps=yes
py "$sock" "$stepd_pid" <<'END'
import os
import signal
import sys
from client import Client

path, pid = sys.argv[1], int(sys.argv[2])
c = Client(path)
ids = [c.submit("generate", prompt="Once", max_tokens=5) for _ in range(3)]
n_accepted = 0
while n_accepted < 3:
    n_accepted += c.recv()["event"] == "accepted"
os.kill(pid, signal.SIGTERM)
while c.last("ping")["state"] != "draining":
    pass
os.kill(pid, signal.SIGTERM)
ends = {}
while len(ends) < 3:
    e = c.recv()
    if e["event"] in ("done", "error"):
        assert e["id"] not in ends
        ends[e["id"]] = e
for request_id in ids:
    e = ends[request_id]
    assert e.get("code") == "draining" or \
        e.get("finish_reason") == "cancelled", e
assert c.at_end()
END
reap_stepd twice 0
wait_for_line "$tmp/twice.log" 'second signal: 3 requests are ended'
[ ! -e "$sock" ] || fail "the socket is left"

# ---- drain_timeout bounds the wait
start_stepd -n late --set test_hold_steps=yes --set drain_timeout=100ms
py "$sock" "$stepd_pid" <<'END'
import os
import signal
import sys
from client import Client

path, pid = sys.argv[1], int(sys.argv[2])
c = Client(path)
request_id = c.submit("generate", prompt="Once", max_tokens=5)
assert c.recv()["event"] == "accepted"
os.kill(pid, signal.SIGTERM)
e = list(c.events_of(request_id))[-1]
assert e.get("code") == "draining" or e.get("finish_reason") == "cancelled", e
assert c.at_end()
END
reap_stepd late 0
wait_for_line "$tmp/late.log" 'drain_timeout is over: 1 requests are ended'

# ---- a stop while the model loads
launch_stepd -n load --set test_hold_load=yes
wait_for_line "$tmp/load.log" 'stepd .*: '
py "$sock" "$stepd_pid" <<'END'
import os
import signal
import sys
from client import Client

path, pid = sys.argv[1], int(sys.argv[2])
c = Client(path)
request_id = c.submit("generate", prompt="Once", max_tokens=5)
assert c.last("ping")["state"] == "loading"
os.kill(pid, signal.SIGTERM)
e = c.recv()
assert e["id"] == request_id and e["event"] == "error", e
assert e["code"] == "draining", e
assert c.at_end()
END
reap_stepd load 0
[ ! -e "$sock" ] || fail "the socket is left"

# ---- an idle daemon stops by SIGINT as well
start_stepd -n idle
kill -INT "$stepd_pid"
reap_stepd idle 0
