#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# A client that asks for much and does not read (field report 80): its generation
# pauses, others are served as if it were not there, and when it reads at last it gets every token of the answer that it would have
# got at once.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
start_stepd --set max_output_soft=4K --set max_output_hard=256K \
    --set slow_client_timeout=1h
py "$sock" <<'END'
import sys
from client import Client, FINAL

path = sys.argv[1]
# Hot, so that the answer does not end by itself; wide, so that it is large.
ASK = {"prompt": "Count: one two three", "temperature": 100, "seed": 0,
       "max_tokens": 400, "want_ids": True, "logprobs": 20}


def ids_of(events):
    assert events[-1]["event"] == "done", events[-1]
    return [i for e in events for i in e.get("ids") or []]


other = Client(path)
for seed in range(50):
    ASK["seed"] = seed
    events = list(other.request("generate", **ASK))
    fast = ids_of(events)
    if len(fast) >= 350:
        break
assert len(fast) >= 350, "no long answer found"

slow = Client(path, hello=False)
# A small receive buffer does not bound what the kernel holds for a Unix
# socket; the daemon's limits must.
slow.say_hello()
slow_id = slow.submit("generate", **ASK)

# It pauses: the steps of others' requests go by without it. A pause that ends
# (the kernel still takes something) would be over by then.
before = other.last("status")
served = drawn = 0
paused = False
while not paused or drawn != last:
    last = drawn
    served += other.generate(prompt="Once", max_tokens=5,
                             temperature=0)[3]["usage"]["completion_tokens"]
    s = other.last("status")
    drawn = s["tokens"]["completion"] - before["tokens"]["completion"] - served
    assert drawn < len(fast), "it ran to its end unread"
    paused = [j["state"] for j in s["jobs"]] == ["paused"]

# Others are served, and a cancel on the slow connection would be heard: it is
# read (its second request is answered into the same full output).
assert ids_of(list(other.request("generate", **ASK))) == fast
slow.submit("generate", prompt="never", max_tokens=5, id=777)
while len(other.last("status")["jobs"]) != 2:
    pass
slow.submit("cancel", target=777, id=778)
while len(other.last("status")["jobs"]) != 1:
    pass

# It reads: all of it, in order, once.
events = {slow_id: [], 777: [], 778: []}
while sum(bool(v) and v[-1]["event"] in FINAL for v in events.values()) < 3:
    e = slow.recv()
    events[e["id"]].append(e)
assert ids_of(events[slow_id]) == fast
assert events[777][-1]["finish_reason"] == "cancelled"
assert events[778][-1]["cancelled"] == 1
END
stop_stepd

# ---- one that never reads and keeps asking is dropped by the rule
start_stepd -n drop --set max_output_soft=8K --set max_output_hard=16K \
    --set slow_client_timeout=50ms
py "$sock" <<'END'
import sys
from client import Client, pack

path = sys.argv[1]
other, greedy = Client(path), Client(path)
pings = b"".join(pack({"op": "describe", "id": 9}) for _ in range(50))
try:
    for _ in range(1000):
        greedy.send_raw(pings)
    raise AssertionError("never dropped")
except ConnectionError:
    pass
text = "".join(e.get("text", "") for e in other.request("metrics"))
assert "stepd_slow_clients_total 1\n" in text, text
assert other.last("status")["connections"]["open"] == 1
END
stop_stepd drop
