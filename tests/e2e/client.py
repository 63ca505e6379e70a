#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
"""A client of stepd that shares no code with it.

It was written from the text at the top of client/wire.h alone, on Python's own
sockets and python3-msgpack, so that what the daemon says is checked against the
specification and not against the library's idea of it.

    with Client(path) as c:
        for event in c.request("generate", prompt="Once", max_tokens=5):
            ...

As a program it puts the protocol's rules to the daemon behind a socket and
prints one line a rule:  client.py SOCKET [MAX_TOKENS]
"""

import os
import socket
import struct
import sys
import time

import msgpack

HEADER = struct.Struct(">I")
FINAL = ("done", "error", "hello")


def pack(body):
    """A frame of a map."""
    data = msgpack.packb(body, use_bin_type=True)
    return HEADER.pack(len(data)) + data


def unpack(data):
    """A frame's body, as strict as wire.h section 1."""

    def pairs(items):
        keys = [key for key, _ in items]
        assert len(set(keys)) == len(keys), f"a key twice: {keys}"
        return dict(items)

    def ext(code, _):
        raise AssertionError(f"an ext value of type {code}")

    body = msgpack.unpackb(
        data, raw=False, strict_map_key=True, object_pairs_hook=pairs,
        ext_hook=ext, max_bin_len=2**24, max_str_len=2**24,
        max_array_len=2**24, max_map_len=2**24)
    assert isinstance(body, dict), "a frame's body is a map"
    return body


def until(look, seconds=120):
    """What look() gives once that is true, or None; only a hang takes long."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found or time.monotonic() > end:
            return found


class Closed(Exception):
    """The daemon has closed the connection."""


class Client:
    """One connection."""

    def __init__(self, path, hello=True, timeout=120):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(timeout)
        self.sock.connect(path)
        self.last_id = 0
        self.data = b""
        self.max_frame = 16 << 20
        self.hello = None
        if hello:
            self.say_hello()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    # ---- frames ----

    def send_raw(self, data):
        self.sock.sendall(data)

    def send(self, body):
        self.send_raw(pack(body))

    def _read(self, n):
        while len(self.data) < n:
            try:
                more = self.sock.recv(1 << 16)
            except ConnectionError as e:
                raise Closed from e
            if not more:
                raise Closed
            self.data += more
        data, self.data = self.data[:n], self.data[n:]
        return data

    def recv(self):
        """The next event."""
        (n,) = HEADER.unpack(self._read(4))
        assert 1 <= n <= self.max_frame, f"a frame of {n} bytes"
        event = unpack(self._read(n))
        assert isinstance(event["id"], int) and isinstance(event["event"], str)
        return event

    def at_end(self):
        """True when the daemon has closed and said nothing more."""
        try:
            self.recv()
        except Closed:
            return True
        return False

    # ---- requests ----

    def next_id(self):
        self.last_id += 1
        return self.last_id

    def say_hello(self, **keys):
        body = {"op": "hello", "id": self.next_id(), "version_min": 1,
                "version_max": 1, "client_name": "client.py", "features": []}
        body.update(keys)
        self.send(body)
        event = self.recv()
        if event["event"] == "hello":
            self.hello = event
            self.max_frame = event["limits"]["max_frame"]
        return event

    def submit(self, op, **keys):
        """Sends a request; its id."""
        request_id = keys.pop("id", None) or self.next_id()
        self.send({"op": op, "id": request_id, **keys})
        return request_id

    def events_of(self, request_id):
        """Events up to the last one; those of other requests are an error."""
        while True:
            event = self.recv()
            assert event["id"] == request_id, f"not of {request_id}: {event}"
            yield event
            if event["event"] in FINAL:
                return

    def request(self, op, **keys):
        return self.events_of(self.submit(op, **keys))

    def last(self, op, **keys):
        """The final event of a request."""
        return list(self.request(op, **keys))[-1]

    def generate(self, **keys):
        """(content, reasoning, ids, done) of a request that must succeed."""
        text = {"content": "", "reasoning": ""}
        ids = []
        for event in self.request("generate", **keys):
            if event["event"] == "delta":
                text[event["kind"]] += event.get("text") or ""
                ids += event.get("ids") or []
        assert event["event"] == "done", event
        return text["content"], text["reasoning"], ids, event


# ---- the rules, one function each ------------------------------------------

RULES = []


def rule(fn):
    RULES.append(fn)
    return fn


def assert_error(event, code, detail=None, request_id=None):
    assert event["event"] == "error", event
    assert event["code"] == code, event
    assert isinstance(event["message"], str) and event["message"], event
    if detail is not None:
        assert event.get("detail") == detail, event
    if request_id is not None:
        assert event["id"] == request_id, event


@rule
def hello_says_what_there_is(path, _):
    with Client(path) as c:
        h = c.hello
        assert h["version"] == 1 and h["version_min"] <= 1 <= h["version_max"]
        assert "op.generate" in h["features"]
        assert "key.temperature" in h["features"]
        assert len(set(h["features"])) == len(h["features"])
        for name in ("max_frame", "max_frame_hello", "max_depth", "max_values",
                     "max_stops", "max_in_flight"):
            assert isinstance(h["limits"][name], int), name


@rule
def describe_agrees_with_hello(path, _):
    with Client(path) as c:
        d = c.last("describe")
        features = {"op." + op["name"] for op in d["ops"] if op["supported"]}
        features |= {"key." + k["name"] for k in d["keys"] if k["supported"]}
        assert features <= set(c.hello["features"])
        for limit in d["limits"]:
            assert limit["name"] in c.hello["limits"], limit
        names = {k["name"] for k in d["keys"]}
        for op in d["ops"]:
            assert set(op["needs"]) | set(op["takes"]) <= names
        assert {e["name"] for e in d["events"]} >= {"accepted", "delta", "done"}
        assert {c["name"] for c in d["codes"]} >= {"bad_request", "busy"}


@rule
def nothing_runs_before_hello(path, _):
    with Client(path, hello=False) as c:
        request_id = c.submit("ping")
        assert_error(c.recv(), "bad_request", request_id=request_id)
        assert c.at_end()


@rule
def version_without_overlap_is_told_the_range(path, _):
    with Client(path, hello=False) as c:
        event = c.say_hello(version_min=7, version_max=9, novelty={"a": 1})
        assert_error(event, "version")
        assert event["version_min"] == 1 and event["version_max"] >= 1
        assert c.at_end()


@rule
def second_hello_is_refused_and_the_connection_lives(path, _):
    with Client(path) as c:
        assert_error(c.last("hello", version_min=1, version_max=1),
                     "bad_request")
        assert c.last("ping")["event"] == "done"


@rule
def frame_limit_before_hello(path, _):
    with Client(path, hello=False) as c:
        c.send_raw(HEADER.pack(4097))
        assert_error(c.recv(), "bad_frame", request_id=0)
        assert c.at_end()


@rule
def frame_limit_after_hello(path, _):
    with Client(path) as c:
        c.send_raw(HEADER.pack(c.hello["limits"]["max_frame"] + 1))
        assert_error(c.recv(), "bad_frame", request_id=0)
        assert c.at_end()


@rule
def malformed_bodies_are_bad_frames(path, _):
    for body in (b"\xc1", b"\x90", b"\x01", b"\x81\xa1a", b"\x82\xa2id\x01",
                 b"\xdf\xff\xff\xff\xff", b"\x81\xa1a" + b"\xdd\x00\x10\x00\x00"
                 * 29):
        with Client(path) as c:
            c.send_raw(HEADER.pack(len(body)) + body)
            assert_error(c.recv(), "bad_frame", request_id=0)
            assert c.at_end()
    with Client(path) as c:
        c.send_raw(HEADER.pack(0))
        assert_error(c.recv(), "bad_frame", request_id=0)
        assert c.at_end()


@rule
def bad_requests_name_the_key_and_the_connection_lives(path, _):
    with Client(path) as c:
        for keys, detail in (
                ({"temprature": 1.0}, "temprature"),
                ({"temperature": "1"}, "temperature"),
                ({"temperature": -1}, "temperature"),
                ({"temperature": float("nan")}, "temperature"),
                ({"temperature": float("inf")}, "temperature"),
                ({"top_k": 1.0}, "top_k"),
                ({"top_p": 0}, "top_p"),
                ({"max_tokens": True}, "max_tokens"),
                ({"stop": "x"}, "stop"),
                ({"stop": ["x"] * 17}, "stop"),
                ({"tools": []}, "tools"),
                ({"target": 1}, "target"),
                ({"seed": msgpack.ExtType(1, b"")}, "seed"),
                ({"x_a": msgpack.Timestamp(1)}, "x_a")):
            request_id = c.submit("generate", prompt="a", **keys)
            assert_error(c.recv(), "bad_request", detail, request_id)
        assert_error(c.last("generate"), "bad_request")
        assert_error(c.last("render"), "bad_request", "messages")
        assert_error(c.last("cancel"), "bad_request", "target")
        assert_error(c.last("sing"), "unknown_op", "sing")
        assert c.last("ping")["event"] == "done"


@rule
def duplicate_keys_and_trailing_bytes(path, _):
    with Client(path) as c:
        body = b"\x83\xa2id\x05\xa2op\xa4ping\xa2op\xa4ping"
        c.send_raw(HEADER.pack(len(body)) + body)
        assert_error(c.recv(), "bad_request", "op", 5)
        body = b"\x82\xa2id\x06\xa2op\xa4ping\xc0"
        c.send_raw(HEADER.pack(len(body)) + body)
        assert_error(c.recv(), "bad_request", request_id=6)
        body = b"\x82\xa2id\x07\xa2op\xa2\xff\xfe"
        c.send_raw(HEADER.pack(len(body)) + body)
        assert_error(c.recv(), "bad_request", "op", 7)
        assert c.last("ping")["event"] == "done"


@rule
def depth_is_limited(path, _):
    with Client(path) as c:
        for depth, ok in ((31, True), (32, False), (500, False)):
            body = (b"\x83\xa2id\x09\xa2op\xa4ping\xa3x_a" + b"\x91" * depth
                    + b"\xc0")
            c.send_raw(HEADER.pack(len(body)) + body)
            event = c.recv()
            assert event["id"] == 9
            assert event["event"] == ("done" if ok else "error"), event


@rule
def a_frame_may_come_byte_by_byte(path, _):
    with Client(path) as c:
        for byte in pack({"op": "ping", "id": 77}):
            c.send_raw(bytes([byte]))
        assert c.recv()["id"] == 77


@rule
def many_frames_may_come_at_once(path, _):
    with Client(path) as c:
        c.send_raw(b"".join(pack({"op": "ping", "id": i})
                            for i in range(100, 150)))
        assert [c.recv()["id"] for _ in range(50)] == list(range(100, 150))


@rule
def nil_is_absent_and_x_keys_are_ignored(path, _):
    with Client(path) as c:
        assert c.last("tokenize", prompt="a", special=None, x_trace="t",
                      x_=[1])["event"] == "done"
        assert_error(c.last("tokenize", prompt=None), "bad_request", "prompt")


@rule
def tokens_and_text_round_trip(path, _):
    for text in ("", "a", "Hello, World!\n", "\u00e9\u4e2d\U0001f600", "a\0b",
                 "x" * 5000):
        with Client(path) as c:
            ids = [i for e in c.request("tokenize", prompt=text)
                   for i in e.get("ids") or []]
            parts = [e["text"] for e in c.request("detokenize", ids=ids)
                     if e["event"] == "part"]
            back = b"".join(p.encode() if isinstance(p, str) else p
                            for p in parts)
            assert back == text.encode(), (text, back)


@rule
def prompt_as_bytes_equals_prompt_as_text(path, _):
    with Client(path) as c:
        as_text = list(c.request("tokenize", prompt="h\u00e9"))
        as_bytes = list(c.request("tokenize", prompt="h\u00e9".encode()))
        assert [e.get("ids") for e in as_text] == \
            [e.get("ids") for e in as_bytes]


@rule
def generation_streams_and_ends_once(path, max_tokens):
    with Client(path) as c:
        events = list(c.request("generate", prompt="Once upon", temperature=0,
                                max_tokens=max_tokens, want_ids=True,
                                logprobs=2))
        names = [e["event"] for e in events]
        assert names[0] == "accepted" and names[-1] == "done"
        assert names.count("done") == 1 and "error" not in names
        done = events[-1]
        ids = [i for e in events for i in e.get("ids") or []]
        usage = done["usage"]
        assert usage["completion_tokens"] == len(ids) <= max_tokens
        assert done["finish_reason"] in ("stop", "length")
        assert isinstance(done["seed"], int)
        logprobs = [p for e in events for p in e.get("logprobs") or []]
        assert [p["id"] for p in logprobs] == ids
        for p in logprobs:
            assert isinstance(p["bytes"], bytes)
            assert p["logprob"] <= 0 and len(p["top"]) == 2
            assert p["top"][0]["logprob"] >= p["top"][1]["logprob"]
        again = c.generate(prompt="Once upon", temperature=0,
                           max_tokens=max_tokens, want_ids=True)
        assert again[2] == ids


@rule
def two_requests_share_a_connection(path, max_tokens):
    with Client(path) as c:
        first = c.submit("generate", prompt="One", temperature=0,
                         max_tokens=max_tokens)
        second = c.submit("generate", prompt="Two", temperature=0,
                          max_tokens=max_tokens)
        text = {first: "", second: ""}
        ended = set()
        while len(ended) < 2:
            e = c.recv()
            assert e["id"] not in ended
            text[e["id"]] += e.get("text") or ""
            if e["event"] in FINAL:
                assert e["event"] == "done", e
                ended.add(e["id"])
    with Client(path) as c:
        for prompt, request_id in (("One", first), ("Two", second)):
            alone = c.generate(prompt=prompt, temperature=0,
                               max_tokens=max_tokens)
            assert alone[0] == text[request_id]


@rule
def an_id_in_flight_is_refused_under_0(path, max_tokens):
    with Client(path) as c:
        request_id = c.submit("generate", prompt="One", temperature=0,
                              max_tokens=max_tokens)
        c.submit("ping", id=request_id)
        seen = []
        while True:
            e = c.recv()
            seen.append(e)
            if e["id"] == request_id and e["event"] in FINAL:
                break
        assert e["event"] == "done", e
        refused = [x for x in seen if x["id"] == 0]
        # A generation that had ended before frees its id: ping is answered.
        if refused:
            assert_error(refused[0], "bad_request", "id")
        assert len(refused) <= 1


@rule
def cancel_ends_a_request(path, _):
    with Client(path) as c:
        request_id = c.submit("generate", prompt="Count: 1 2 3", temperature=0)
        first = c.recv()
        assert first["event"] == "accepted", first
        cancel = c.submit("cancel", target=request_id)
        last = {}
        while len(last) < 2:
            e = c.recv()
            assert e["id"] in (request_id, cancel) and e["id"] not in last, e
            if e["event"] in FINAL:
                last[e["id"]] = e
        done = last[request_id]
        assert done["event"] == "done", done
        # Whatever was faster, but nothing between.
        if last[cancel]["event"] == "done":
            assert last[cancel]["cancelled"] == 1
            reasons = ("cancelled", "stop", "length")
        else:
            assert_error(last[cancel], "not_found")
            reasons = ("stop", "length")
        assert done["finish_reason"] in reasons, done
        assert_error(c.last("cancel", target=request_id), "not_found")
        assert_error(c.last("cancel", job=first["job"]), "not_found")
        assert_error(c.last("cancel", job=2**63), "not_found")


@rule
def unsupported_names_the_key(path, _):
    with Client(path) as c:
        described = c.last("describe")
        for key in described["keys"]:
            if key["supported"] or "generate" not in key["ops"] or \
                    key["type"] != "bool":
                continue
            assert_error(c.last("generate", messages=[], **{key["name"]: True}),
                         "unsupported", key["name"])
        for op in described["ops"]:
            if not op["supported"]:
                assert_error(c.last(op["name"]), "unsupported", op["name"])


@rule
def more_in_flight_than_allowed_are_busy(path, _):
    with Client(path) as c:
        most = c.hello["limits"]["max_in_flight"]
        asked = [c.next_id() for _ in range(most + 5)]
        cancels = {c.next_id(): i for i in asked}
        # Written at once, so that they are read before the first has ended.
        c.send_raw(b"".join(
            [pack({"op": "generate", "id": i, "prompt": "Count: 1 2 3",
                   "temperature": 0, "max_tokens": 1000}) for i in asked] +
            [pack({"op": "cancel", "id": i, "target": t})
             for i, t in cancels.items()]))
        accepted, busy, done = set(), set(), set()
        left = set(asked) | set(cancels)
        while left:
            e = c.recv()
            assert e["id"] in left, e
            if e["event"] in FINAL:
                left.remove(e["id"])
            if e["event"] == "accepted":
                accepted.add(e["id"])
                assert len(accepted & left) <= most, accepted & left
            elif e["event"] == "error" and e["id"] in cancels:
                assert_error(e, "not_found")
            elif e["event"] == "error":
                assert_error(e, "busy")
                assert e["id"] not in accepted and e["retry_ms"] > 0, e
                busy.add(e["id"])
            elif e["event"] == "done" and e["id"] not in cancels:
                done.add(e["id"])
        assert busy and done | busy == set(asked), (done, busy)
        assert accepted <= done, accepted - done
        # Room again.
        assert c.generate(prompt="a", max_tokens=1)[3]["event"] == "done"


def assert_logprobs(entries, n_top):
    for p in entries:
        assert isinstance(p["id"], int) and isinstance(p["bytes"], bytes), p
        assert p["logprob"] is None or p["logprob"] <= 0, p
        assert len(p["top"]) == n_top, p
        best = [t["logprob"] for t in p["top"] if t["logprob"] is not None]
        assert best == sorted(best, reverse=True), p


@rule
def logprobs_are_of_each_token(path, max_tokens):
    text = "Once upon a time"
    with Client(path) as c:
        for bad in (-1, 21, 2.0):
            assert_error(c.last("generate", prompt="a", logprobs=bad),
                         "bad_request", "logprobs")
        plain = c.generate(prompt=text, temperature=0, max_tokens=max_tokens,
                           want_ids=True)
        for n_top in (0, 20):
            events = list(c.request(
                "generate", prompt=text, temperature=0, max_tokens=max_tokens,
                logprobs=n_top, want_ids=True))
            got = [p for e in events for p in e.get("logprobs") or []]
            assert [p["id"] for p in got] == plain[2]
            assert_logprobs(got, n_top)
            for p in got:  # greedy: the likeliest was drawn
                assert n_top == 0 or p["top"][0]["logprob"] == p["logprob"], p
        # Of a text that is there: one for each token but the first.
        ids = [i for e in c.request("tokenize", prompt=text)
               for i in e.get("ids") or []]
        events = list(c.request("score", prompt=text, logprobs=3))
        scored = [p for e in events for p in e.get("logprobs") or []]
        assert {e["event"] for e in events[:-1]} <= {"accepted", "part",
                                                     "progress"}
        assert [p["id"] for p in scored] == ids, (scored, ids)
        assert b"".join(p["bytes"] for p in scored) == text.encode()
        assert_logprobs(scored, 3)
        # The same, before an answer.
        events = list(c.request("generate", prompt=text, prompt_logprobs=3,
                                temperature=0, max_tokens=1))
        assert [p for e in events if e["event"] == "part"
                for p in e.get("logprobs") or []] == scored


@rule
def metrics_are_what_prometheus_reads(path, _):
    with Client(path) as c:
        def read():
            events = list(c.request("metrics"))
            assert [e["event"] for e in events[-1:]] == ["done"]
            text = "".join(e["text"] for e in events[:-1])
            assert text.endswith("\n")
            types, values = {}, {}
            for line in text.splitlines():
                if line.startswith("# TYPE "):
                    _, _, name, kind = line.split(" ")
                    assert name not in types, line
                    types[name] = kind
                elif not line.startswith("# HELP "):
                    name, value = line.rsplit(" ", 1)
                    assert name not in values, line
                    values[name] = float(value)
                    base = name.split("{")[0]
                    assert base in types or base.rsplit("_", 1)[0] in types, \
                        line
            return types, values

        types, before = read()
        c.generate(prompt="Once", temperature=0, max_tokens=3, min_tokens=3)
        _, after = read()
        tokens = 'stepd_tokens_total{kind="completion"}'
        assert after[tokens] == before[tokens] + 3, (before, after)
        for name, value in before.items():
            if types.get(name.split("{")[0]) == "counter":
                assert after[name] >= value, name
        # A histogram's buckets are cumulative, and the last one is its count.
        for name in [n for n, kind in types.items() if kind == "histogram"]:
            series = {}
            for key, value in after.items():
                if key.startswith(name + "_bucket{"):
                    labels = key[key.index("{") + 1:-1].split(",")
                    rest = tuple(x for x in labels if not x.startswith("le="))
                    series.setdefault(rest, []).append(value)
            assert series, name
            for labels, buckets in series.items():
                assert buckets == sorted(buckets), (name, labels)
                key = name + "_count" + ("{" + ",".join(labels) + "}"
                                         if labels else "")
                assert buckets[-1] == after[key], (name, labels)


@rule
def status_and_ping_answer(path, _):
    with Client(path) as c:
        assert c.last("ping")["state"] == "ready"
        status = c.last("status")
        assert status["state"] == "ready"
        assert status["served_model_name"] == c.hello["served_model_name"]


def main():
    path = sys.argv[1]
    max_tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    n_failed = 0
    for fn in RULES:
        try:
            fn(path, max_tokens)
            print(f"ok    {fn.__name__}", flush=True)
        except Exception as e:  # pylint: disable=broad-except
            n_failed += 1
            where = e.__traceback__
            while where.tb_next is not None:
                where = where.tb_next
            print(f"FAIL  {fn.__name__}: line {where.tb_lineno}: "
                  f"{type(e).__name__}: {e}", flush=True)
    print(f"{len(RULES) - n_failed} rules kept, {n_failed} broken")
    return 1 if n_failed else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
