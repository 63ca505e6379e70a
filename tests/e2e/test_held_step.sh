#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Whatever the engine is doing, the I/O thread answers: 50 pings, status, metrics
# and a cancel within one step that is held on purpose (test_hold_steps).

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
start_stepd --set test_hold_steps=yes
py "$sock" "$stepd_pid" <<'END'
import os
import signal
import sys
from client import Client

path, pid = sys.argv[1], int(sys.argv[2])
c, other = Client(path), Client(path)
request_id = c.submit("generate", prompt="Once upon a time", temperature=0,
                      max_tokens=3)
assert c.recv()["event"] == "accepted"
s = other.last("status")
while s["running"] != 1 or s["queued"] != 0:
    s = other.last("status")
steps = s["steps"]["total"]
for i in range(50):
    who = c if i % 2 else other
    ping = who.submit("ping")
    e = who.recv()
    while e["event"] == "progress":
        e = who.recv()
    assert e["id"] == ping and e["state"] == "ready", e
text = "".join(e.get("text", "") for e in other.request("metrics"))
assert "stepd_jobs{state=\"running\"} 1\n" in text, text
after = other.last("status")
assert after["steps"]["total"] == steps, "a step passed in between"
assert after["running"] == 1

# A cancel is heard in the held step too: no release is needed for its end.
cancel = c.submit("cancel", target=request_id)
ends = {}
while len(ends) < 2:
    e = c.recv()
    if e["event"] == "done":
        ends[e["id"]] = e
assert ends[request_id]["finish_reason"] == "cancelled", ends
assert ends[request_id]["usage"]["completion_tokens"] == 0

# And once steps may pass, an answer comes.
os.kill(pid, signal.SIGUSR2)
text, _, _, done = c.generate(prompt="Once upon a time", temperature=0,
                              max_tokens=3)
assert done["usage"]["completion_tokens"] == 3
END
stop_stepd
