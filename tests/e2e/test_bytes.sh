#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Hostile bytes over a real socket: one byte at a time, garbage, oversize, depth
# and count bombs, wrong order, random damage to good frames. Each is answered by
# what wire.h says or by a closed connection, a bystander on another connection
# is served throughout, and afterwards nothing is left: no connection, no file,
# no page, and no memory beyond a small allowance.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
start_stepd
py "$sock" <<'END'
import random
import sys
import client
from client import Client, Closed, HEADER, assert_error, pack

path = sys.argv[1]
rng = random.Random(20261130)
bystander = Client(path)


def free(status):
    """Pages that a request can have; what is cached is among them."""
    return [status["pages"][g]["free"] for g in ("full", "sliding")]


pages = free(bystander.last("status"))


def status():
    return bystander.last("status")


def served():
    assert bystander.last("ping")["state"] == "ready"


def drink(c):
    """Events until the daemon closes or is waiting for more."""
    events = []
    c.sock.settimeout(None)
    c.sock.shutdown(1)
    try:
        while True:
            events.append(c.recv())
    except Closed:
        return events


HELLO = pack({"op": "hello", "id": 1, "version_min": 1, "version_max": 1})
GENERATE = pack({"op": "generate", "id": 2, "prompt": "Once upon",
                 "temperature": 0, "max_tokens": 4})

# ---- one byte at a time, hello and a whole answer
c = Client(path, hello=False)
for byte in HELLO + GENERATE:
    c.send_raw(bytes([byte]))
assert c.recv()["event"] == "hello"
events = list(c.events_of(2))
assert events[-1]["event"] == "done", events[-1]
c.close()
served()

# The first rounds pay for what is kept (buffers, arenas).
for _ in range(20):
    c = Client(path, hello=False)
    c.send_raw(HELLO)
    drink(c)
    c.close()
before = status()

# ---- garbage
for n in (1, 3, 4, 5, 100, 5000, 100000):
    for _ in range(10):
        c = Client(path, hello=False)
        try:
            c.send_raw(rng.randbytes(n))
            for e in drink(c):
                assert e["event"] == "error", e
        except (ConnectionError, OSError):
            pass
        c.close()
served()

# ---- oversize: a claim is not memory, and sending it all does not help
for claim in (16 << 20 | 1, 1 << 31, 0xffffffff):
    c = Client(path)
    c.send_raw(HEADER.pack(claim))
    assert_error(c.recv(), "bad_frame", request_id=0)
    assert c.at_end()
    c.close()
c = Client(path)
try:
    c.send_raw(HEADER.pack(17 << 20))
    for _ in range(17):
        c.send_raw(bytes(1 << 20))
except ConnectionError:
    pass
assert_error(c.recv(), "bad_frame", request_id=0)
c.close()
held = [Client(path) for _ in range(50)]
for c in held:
    c.send_raw(HEADER.pack(16 << 20) + b"\x82\xa2op")
served()
grown = status()["memory"]["resident"] - before["memory"]["resident"]
assert grown < 16 << 20, f"{grown} bytes for 50 claims"
for c in held:
    c.close()

# ---- depth and count bombs
bombs = [
    b"\x91" * 100000 + b"\xc0",
    b"\x81\xa1a" * 40000 + b"\xc0",
    b"\x83\xa2id\x09\xa2op\xa4ping\xa3x_a" + b"\x91" * 200 + b"\xc0",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\x82\xa2id\x01\xa3x_a\xdd\x7f\xff\xff\xff",
    b"\x82\xa2id\x01\xa3x_a" + b"\xdd\x00\x00\xff\xff" * 30,
    b"\x82\xa2id\x01\xa3x_a\xdb\xff\xff\xff\xff",
    b"\x82\xa2id\x01\xa3x_a\xdd\x00\x20\x00\x00" + b"\xc0" * (1 << 21),
]
for body in bombs:
    c = Client(path)
    c.send_raw(HEADER.pack(len(body)) + body)
    e = c.recv()
    assert e["event"] == "error" and e["code"] in ("bad_frame", "bad_request")
    c.close()
served()
grown = status()["memory"]["resident"] - before["memory"]["resident"]
assert grown < 96 << 20, f"{grown} bytes for bombs"

# ---- wrong order: nothing runs before hello, whatever it is
for op in ("ping", "status", "generate", "drain", "cancel"):
    c = Client(path, hello=False)
    c.send({"op": op, "id": 3})
    e = c.recv()
    assert e["event"] == "error" and e["code"] in (
        "bad_request", "unsupported"), e
    c.close()

# ---- random damage to good frames: never an answer to what was not asked
good = HELLO + GENERATE + pack({"op": "ping", "id": 5}) + pack(
    {"op": "tokenize", "id": 6, "prompt": "a b c"})
for _ in range(400):
    data = bytearray(good)
    for _ in range(rng.randint(1, 4)):
        kind = rng.random()
        at = rng.randrange(len(data))
        if kind < 0.6:
            data[at] = rng.randrange(256)
        elif kind < 0.8:
            del data[at]
        else:
            data.insert(at, rng.randrange(256))
    c = Client(path, hello=False)
    try:
        c.send_raw(bytes(data))
        ends = {}
        for e in drink(c):
            if e["event"] in client.FINAL and e["id"] != 0:
                assert e["id"] not in ends, (e, ends[e["id"]])
                ends[e["id"]] = e
    except ConnectionError:
        pass
    c.close()
served()

# ---- and nothing is left behind
def settled():
    s = status()
    return s["connections"]["open"] == 1 and not s["jobs"] and \
        free(s) == pages and s["running"] == 0


client.until(settled)
after = status()
assert after["connections"]["open"] == 1, after["connections"]
assert after["jobs"] == [] and after["running"] == 0, after
assert after["open_fds"] == before["open_fds"], (before, after)
assert free(after) == pages, (pages, after["pages"])
grown = after["memory"]["resident"] - before["memory"]["resident"]
assert grown < 96 << 20, f"{grown} bytes are left"
print(f"resident: {grown >> 10} KiB more than before")
END
stop_stepd
