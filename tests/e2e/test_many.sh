#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Many at once: 200 connections that all get an answer, and 32 concurrent
# requests of every kind, each equal, token for token, to its run alone.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
start_stepd
py "$sock" <<'END'
import random
import sys
from client import Client, FINAL

path = sys.argv[1]
rng = random.Random(7)

# ---- 200 connections, all open, each served
crowd = [Client(path) for _ in range(200)]
assert crowd[0].last("status")["connections"]["open"] == 200
ids = [c.submit("tokenize", prompt=f"user {i}") for i, c in enumerate(crowd)]
for c, request_id in zip(crowd, ids):
    assert list(c.events_of(request_id))[-1]["event"] == "done"
some = crowd[::4]
ids = [c.submit("generate", prompt="The", temperature=0, max_tokens=2,
                want_ids=True) for c in some]
answers = []
for c, request_id in zip(some, ids):
    answers.append([i for e in c.events_of(request_id)
                    for i in e.get("ids") or []])
assert all(a == answers[0] for a in answers) and len(answers[0]) == 2
for c in crowd:
    c.close()

# ---- 32 requests at once equal their solo runs
requests = []
for i in range(32):
    r = {"temperature": rng.choice([0, 0.7, 1.0]), "seed": i, "want_ids": True,
         "max_tokens": rng.randint(1, 12), "logprobs": 1}
    if i % 3 == 0:
        r["messages"] = [{"role": "user", "content":
                          rng.choice(["What is the capital of Kenya?",
                                      "What is 7 plus 5?", "List files."])}]
        r["thinking"] = bool(i % 2)
    else:
        r["prompt"] = "word " * rng.randint(1, 30) + f"number {i}"
    if i % 4 == 1:
        r["top_p"] = 0.9
    if i % 5 == 2:
        r["repetition_penalty"] = 1.2
    requests.append(r)


def collect(events):
    """(ids, logprobs, text, finish, seed) of one answer."""
    ids, logprobs, text = [], [], ""
    for e in events:
        ids += e.get("ids") or []
        logprobs += [p["logprob"] for p in e.get("logprobs") or []]
        text += e.get("text") or ""
    last = events[-1]
    assert last["event"] == "done", last
    return ids, logprobs, text, last["finish_reason"], last["seed"]


with Client(path) as c:
    alone = [collect(list(c.request("generate", **r))) for r in requests]

# Over four connections, in a random order.
conns = [Client(path) for _ in range(4)]
where = {}
order = list(range(32))
rng.shuffle(order)
for i in order:
    c = conns[i % 4]
    where[c, c.submit("generate", **requests[i])] = i
together = {i: [] for i in range(32)}
for c in conns:
    open_ids = {r for k, r in where if k is c}
    while open_ids:
        e = c.recv()
        together[where[c, e["id"]]].append(e)
        if e["event"] in FINAL:
            open_ids.remove(e["id"])
for i in range(32):
    assert collect(together[i]) == alone[i], (i, requests[i], alone[i])
status = conns[0].last("status")
assert status["jobs"] == [], status
r = status["requests"]
assert r["total"] == r["finished"] == 250 + 64, r
END
stop_stepd
