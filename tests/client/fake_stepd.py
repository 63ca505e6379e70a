#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
"""A daemon that does what it is told, to test clients against.

    fake_stepd.py SOCKET LOG [KEY=VALUE]...

It answers hello and then each request by the words in its prompt (see answer),
writes each request to LOG as one line of JSON, and prints "listening" when it
listens. KEYs: mode=version|denied|mute|close (what becomes of hello),
lack=FEATURE (not announced), have=FEATURE,... (beside those below), state=WORD
(of ping), cause=WORD (of status), ready_after=N (pings), sessions=NAME,...
(that are there already), gone=NAME (its pages are not in the cache).
"""

import json
import os
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))
from client import HEADER, pack, unpack  # noqa: E402

OPS = ("hello ping describe generate cancel tokenize detokenize render status "
       "metrics drain").split()
KEYS = ("op id version_min version_max client_name features messages tools "
        "reasoning_effort thinking prompt special add_generation_prompt "
        "want_ids ids temperature top_p min_p top_k repetition_penalty "
        "presence_penalty frequency_penalty seed max_tokens stop logprobs "
        "drafts priority timeout_ms wait target job off").split()

USAGE = {"prompt_tokens": 20, "cached_tokens": 4, "completion_tokens": 12,
         "reasoning_tokens": 3, "drafted": 15, "accepted": 6}
TIMINGS = {"queue_ms": 1.0, "prefill_ms": 100.0, "decode_ms": 500.0}


class Gone(Exception):
    pass


class Connection(threading.Thread):
    def __init__(self, server, sock):
        super().__init__(daemon=True)
        self.server = server
        self.sock = sock
        self.lock = threading.Lock()
        self.cancelled = set()
        self.hanging = set()

    def send(self, **event):
        with self.lock:
            try:
                self.sock.sendall(pack(event))
            except OSError as e:
                raise Gone from e

    def read(self, n):
        data = b""
        while len(data) < n:
            try:
                more = self.sock.recv(n - len(data))
            except OSError as e:
                raise Gone from e
            if not more:
                raise Gone
            data += more
        return data

    def run(self):
        try:
            while True:
                (n,) = HEADER.unpack(self.read(4))
                self.take(unpack(self.read(n)))
        except Gone:
            self.server.log({"gone": True})
        self.sock.close()

    def take(self, r):
        self.server.log(r)
        if r["op"] == "hello":
            self.answer_hello(r)
        elif r["op"] == "generate":
            threading.Thread(target=self.generate, args=(r,),
                             daemon=True).start()
        else:
            getattr(self, "answer_" + r["op"])(r)

    def answer_hello(self, r):
        mode = self.server.keys.get("mode")
        if mode == "version":
            self.send(id=r["id"], event="error", code="version",
                      message="this daemon speaks version 7 only",
                      version_min=7, version_max=7)
        if mode == "denied":
            self.send(id=0, event="error", code="denied",
                      message="uid 1 is not in allow_users")
        if mode in ("version", "denied", "close"):
            raise Gone
        if mode == "mute":
            return
        features = ["op." + op for op in OPS] + ["key." + k for k in KEYS]
        lack = self.server.keys.get("lack")
        have = [f for f in self.server.keys.get("have", "").split(",") if f]
        self.send(id=r["id"], event="hello", version=1, version_min=1,
                  version_max=1, server_version="fake",
                  served_model_name="fake-model",
                  features=[f for f in features if f != lack] + have,
                  limits={"max_frame": 16 << 20}, novelty=[1])

    def answer_ping(self, r):
        self.server.n_pings += 1
        state = self.server.keys.get("state", "ready")
        if self.server.n_pings <= int(self.server.keys.get("ready_after", 0)):
            state = "loading"
        self.send(id=r["id"], event="done", state=state)

    def answer_status(self, r):
        cause = {k: v for k, v in self.server.keys.items() if k == "cause"}
        self.send(id=r["id"], event="done", state="ready", **cause,
                  served_model_name="fake-model", uptime_ms=12,
                  load={"done": 5, "total": 10}, jobs=[{"job": 3}, {"job": 4}],
                  big=2**64 - 1 if "big" in self.server.keys else 1)

    def answer_tokenize(self, r):
        text = r["prompt"]
        data = text.encode() if isinstance(text, str) else text
        for i in range(0, len(data), 1000):
            self.send(id=r["id"], event="part", ids=list(data[i:i + 1000]))
        self.send(id=r["id"], event="done", count=len(data))

    def answer_detokenize(self, r):
        data = bytes(r["ids"])
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = data
        if data:
            self.send(id=r["id"], event="part", text=text)
        self.send(id=r["id"], event="done")

    def answer_render(self, r):
        if r.get("want_ids"):
            self.send(id=r["id"], event="part", ids=[0, 7, 8])
        else:
            self.send(id=r["id"], event="part", text=json.dumps(
                {k: v for k, v in r.items() if k not in ("id", "op")}))
        self.send(id=r["id"], event="done")

    def answer_metrics(self, r):
        self.send(id=r["id"], event="part", text="stepd_up 1\n")
        self.send(id=r["id"], event="part", text="stepd_jobs 2\n")
        self.send(id=r["id"], event="done")

    def answer_session_list(self, r):
        self.send(id=r["id"], event="part",
                  sessions=[{"name": name} for name in self.server.sessions])
        self.send(id=r["id"], event="done")

    def answer_session_pin(self, r):
        self.send(id=r["id"], event="done", tokens=9,
                  pinned=r["session"] != self.server.keys.get("gone"))

    def answer_drain(self, r):
        self.send(id=r["id"], event="done")

    def answer_cancel(self, r):
        target = r.get("target")
        if target in self.hanging or r.get("job") == 1:
            self.send(id=r["id"], event="done", cancelled=1)
            with self.server.changed:
                self.cancelled.add(target)
                self.server.changed.notify_all()
        else:
            self.send(id=r["id"], event="error", code="not_found",
                      message="no such job")

    # ---- generate ----

    def generate(self, r):
        try:
            self.hanging.add(r["id"])
            self.send(id=r["id"], event="accepted", job=9, queue_position=0,
                      prompt_tokens=20)
            self.answer(r)
        except Gone:
            pass

    def delta(self, r, text, kind="content", **more):
        self.send(id=r["id"], event="delta", kind=kind, text=text, **more)

    def done(self, r, reason="stop"):
        self.hanging.discard(r["id"])
        self.send(id=r["id"], event="done", finish_reason=reason, usage=USAGE,
                  seed=2**64 - 1, timings=TIMINGS)

    def answer(self, r):
        session = r.get("session")
        if r.get("append") and session not in self.server.sessions:
            self.send(id=r["id"], event="error", code="not_found",
                      message="no session " + str(session))
            return
        if session is not None and session not in self.server.sessions:
            self.server.sessions.append(session)
        text = r.get("prompt")
        if text is None:
            text = r["messages"][-1]["content"]
        if isinstance(text, bytes):
            text = "bytes"
        word, _, rest = text.partition(":")
        if word == "finish":
            self.delta(r, "Hello")
            self.done(r, rest)
        elif word == "error":
            self.delta(r, "Hel")
            self.send(id=r["id"], event="error", code=rest,
                      message="temperature must be from 0 to 100",
                      detail="temperature", retry_ms=5)
        elif word == "close":
            self.delta(r, "Hel")
            self.sock.shutdown(socket.SHUT_RDWR)
        elif word == "garbage":
            with self.lock:
                self.sock.sendall(bytes.fromhex(rest))
        elif word == "hang":
            self.delta(r, "a")
            with self.server.changed:
                self.server.changed.wait_for(
                    lambda: r["id"] in self.cancelled)
            self.done(r, "cancelled")
        elif word == "stubborn":
            self.delta(r, "a")
        elif word == "flood":
            while r["id"] not in self.cancelled:
                self.delta(r, "flood\n" * 100)
            self.done(r, "cancelled")
        elif word == "think":
            self.send(id=r["id"], event="progress", done=1, total=20, cached=0)
            self.send(id=r["id"], event="news_from_the_future", x=1)
            self.delta(r, "hm", "reasoning", ids=[1])
            self.delta(r, "m", "reasoning", ids=[2])
            self.delta(r, "42", ids=[3, 4])
            self.delta(r, None, ids=[5])
            self.done(r)
        elif word == "call":
            def call(key, **c):
                self.send(id=r["id"], event="delta", kind="tool_call",
                          **{key: c})
            self.delta(r, rest)
            call("call_begin", index=0, id="call_0a", name="get_time")
            call("call_args", index=0, text='{"city": "Os')
            call("call_args", index=0, text='lo"}')
            call("call", index=0, id="call_0a", name="get_time",
                 arguments='{"city": "Oslo", "n": [1, null]}')
            call("call_begin", index=1, id="call_0b", name="no")
            call("call_dropped", index=1)
            call("call", index=1, id="call_0c", name="f", arguments="{}")
            self.done(r, "tool_calls")
        elif word == "control":
            self.delta(r, "a\x1b[31mb\x9b\u00e9\n")
            self.done(r)
        else:
            self.delta(r, text[:3])
            self.delta(r, text[3:])
            self.done(r)


class Server:
    def __init__(self, path, log, keys):
        self.keys = keys
        self.n_pings = 0
        self.sessions = keys.get("sessions", "").split(",")
        self.changed = threading.Condition()
        self.log_lock = threading.Lock()
        self.log_file = open(log, "a", encoding="utf-8")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.bind(path)
        self.sock.listen(64)

    def log(self, r):
        with self.log_lock:
            self.log_file.write(json.dumps(
                r, default=lambda b: {"bytes": b.hex()}) + "\n")
            self.log_file.flush()

    def serve(self):
        while True:
            sock, _ = self.sock.accept()
            Connection(self, sock).start()


def main():
    keys = dict(a.split("=", 1) for a in sys.argv[3:])
    server = Server(sys.argv[1], sys.argv[2], keys)
    print("listening", flush=True)
    server.serve()


if __name__ == "__main__":
    main()
