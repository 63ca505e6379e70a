#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Clients that vanish at random moments (field report 63): their work stops, and
# afterwards every page, file and connection is back. Whoever stays notices
# nothing.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
start_stepd
py "$sock" <<'END'
import random
import sys
from client import Client, FINAL, until

path = sys.argv[1]
rng = random.Random(63)
watch = Client(path)


def free(status):
    """Pages that a request can have; what is cached is among them."""
    return [status["pages"][g]["free"] for g in ("full", "sliding")]


def settled():
    """Status once nobody else is there and every page is back."""
    def look():
        s = watch.last("status")
        return s if s["connections"]["open"] == 1 and not s["jobs"] and \
            free(s) == pages and s["running"] + s["queued"] == 0 else None

    s = until(look)
    assert s, f"it does not settle: {watch.last('status')}"
    return s


def ask(c, n=10000):
    return c.submit("generate", prompt="Tell a story. " * rng.randint(1, 20),
                    temperature=1.0, max_tokens=n, seed=rng.randrange(99))


# One round first, so that what is made once is made.
pages = free(watch.last("status"))
with Client(path) as c:
    c.generate(prompt="a", max_tokens=3)
before = settled()

# ---- fr_63: 10,000 tokens are asked for, one is taken
c = Client(path)
ask(c, 4000)
while c.recv()["event"] != "delta":
    pass
c.close()
after = settled()
drawn = after["tokens"]["completion"] - before["tokens"]["completion"]
assert drawn < 2000, f"{drawn} tokens were drawn for nobody"

# ---- many, at random moments: before hello, in the queue, in prefill, while
# deltas come, with several requests, in the middle of a frame
stayer = Client(path)
stay_id = stayer.submit("generate", prompt="Once", temperature=0,
                        max_tokens=32, want_ids=True)
for i in range(50):
    kind = rng.randrange(6)
    c = Client(path, hello=kind != 0)
    if kind == 0:
        c.send_raw(b"\x00\x00")
    elif kind == 1:
        ask(c)
    elif kind == 2:
        for _ in range(rng.randint(2, 8)):
            ask(c)
        for _ in range(rng.randint(0, 2)):
            c.recv()
    elif kind == 3:
        ask(c)
        for _ in range(rng.randint(1, 20)):
            if c.recv()["event"] in FINAL:
                break
    elif kind == 4:
        c.submit("tokenize", prompt="x" * 100000)
        ask(c)
    else:
        ask(c)
        c.send_raw(b"\x00\x00\x01\x00\x82\xa2op")
    c.close()
ids = [i for e in stayer.events_of(stay_id) for i in e.get("ids") or []]
stayer.close()
after = settled()
assert after["open_fds"] == before["open_fds"], (before, after)
r = after["requests"]
assert r["total"] == r["finished"] + r["failed"] + r["cancelled"], r
assert r["cancelled"] > 20, r  # the moments were early enough to matter
grown = after["memory"]["resident"] - before["memory"]["resident"]
assert grown < 64 << 20, f"{grown} bytes are left"

# The one that stayed got what it would have got alone.
with Client(path) as c:
    again = c.generate(prompt="Once", temperature=0, max_tokens=32,
                       want_ids=True)
assert again[2] == ids
END
stop_stepd
