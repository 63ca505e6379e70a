#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
"""Memory runs out in a running daemon, for one allocation at a time, whoever
asks for it: our code, a library, the start of a thread.

What may become of the request: the right answer, `no_memory`, or its connection
is closed. What may become of the daemon: it lives and serves the next request
right, or, where something small is refused, it ends as daemon/base/die.c says,
with status 70 and a word in the log, and its supervisor starts it again. It is
a sample: NO_MEMORY_SAMPLES allocations of each kind of request, 0 for all. The
kind "start", which is the daemon's own start, runs when it is named."""

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile

SRCDIR = os.environ.get("srcdir", os.path.join(os.path.dirname(__file__),
                                               "../.."))
BUILDDIR = os.environ.get("builddir", ".")
STEPD = os.path.join(BUILDDIR, "daemon/stepd")
STEPCTL = os.path.join(BUILDDIR, "client/stepctl")
PRELOAD = os.path.join(BUILDDIR, "tests/e2e/.libs/fail_malloc.so")
MODEL = os.path.join(SRCDIR, "tests/data/step-tiny")
SAMPLES = int(os.environ.get("NO_MEMORY_SAMPLES", 12))
HANG = int(os.environ.get("WAIT_SECONDS", 120))  # seconds; only a hang reaches it

sys.path.insert(0, os.path.join(SRCDIR, "tests/e2e"))


def skip(why):
    print("SKIP: " + why)
    sys.exit(77)


try:
    from client import Client, Closed
except ImportError:
    skip("python3 has no msgpack")

ASK = [{"role": "user", "content": "What is 7 plus 8?"}]
TOOL = {"type": "function", "function": {
    "name": "get_time", "description": "The time.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}}}}
SHAPE = {"type": "json_schema", "schema": {
    "type": "object", "properties": {"sum": {"type": "integer"}},
    "required": ["sum"]}}

# Kind of request: op and keys. What is told of time and jobs differs each time
# and is not compared.
REQUESTS = {
    "chat": ("generate", {"messages": ASK, "temperature": 0}),
    "schema": ("generate", {"messages": ASK, "temperature": 0,
                            "response_format": SHAPE, "max_tokens": 60}),
    "tools": ("generate", {"messages": ASK, "temperature": 0,
                           "tools": [TOOL], "tool_choice": "required",
                           "max_tokens": 60}),
    "session": ("generate", {"messages": ASK, "temperature": 0,
                             "session": "talk", "max_tokens": 8}),
    "logprobs": ("generate", {"prompt": "Once", "temperature": 0, "logprobs": 2,
                              "max_tokens": 8, "stop": ["zebra"],
                              "bad_words": ["Once"]}),
    "tokenize": ("tokenize", {"prompt": "word " * 500}),
    "render": ("render", {"messages": ASK, "tools": [TOOL]}),
    "describe": ("describe", {}),
    "status": ("status", {}),
    "metrics": ("metrics", {}),
}
COMPARED = ("chat", "schema", "tools", "session", "logprobs", "tokenize",
            "render", "describe")


def ping_until_ready(path):
    """The status of a ping --wait."""
    return subprocess.run([STEPCTL, "-s", path, "ping", "--wait", str(HANG)],
                          check=False, stdout=subprocess.DEVNULL).returncode


class Daemon:
    def __init__(self, folder):
        self.folder = folder
        self.path = os.path.join(folder, "stepd.sock")
        self.control = os.path.join(folder, "control")
        self.log = os.path.join(folder, "log")
        self.process = None
        self.arm(0)

    def arm(self, n):
        fd = os.open(self.control, os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(fd, struct.pack("=QQ", 0, n), 0)
        os.close(fd)

    def count(self):
        with open(self.control, "rb") as f:
            return struct.unpack("=QQ", f.read(16))[0]

    def launch(self):
        env = {**os.environ, "LD_PRELOAD": os.path.abspath(PRELOAD),
               "FAIL_MALLOC": self.control}
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [STEPD, "--config", "/dev/null", "--model", MODEL, "--socket",
                 self.path, "--set", "kv_memory=256M"], env=env, stderr=log)

    def start(self):
        self.launch()
        status = ping_until_ready(self.path)
        assert status == 0, f"ping ends with {status}: {self.said()[-2000:]}"

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def ended(self, seconds):
        """True when the daemon has ended, as it should; it is started again."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        check(status == 70 and ("out of memory" in self.said() or
                                "Cannot allocate memory" in self.said()),
              f"ended with status {status}: {self.said()[-1000:]}")
        self.start()
        return True

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(HANG)
        assert status == 0, f"status {status}: {self.said()[-2000:]}"


def ask(path, kind):
    """What came of a request: (outcome, what it told)."""
    op, keys = REQUESTS[kind]
    told = []
    try:
        with Client(path, hello=False, timeout=HANG) as c:
            event = c.say_hello()
            if event["event"] == "hello":
                for event in c.request(op, **keys):
                    if event["event"] in ("delta", "part"):
                        told.append({k: event[k] for k in event if k != "id"})
            if event["event"] == "error":
                return event["code"], event
    except (Closed, BrokenPipeError, ConnectionRefusedError,
            FileNotFoundError):
        return "closed", None
    return "done", told


def joined(told):
    """Independent of where the pieces were cut, and of ids that are drawn."""
    text, rest = {}, []
    for e in told:
        kind = str(e.get("kind"))
        if kind == "tool_call":
            call = e.get("call")
            rest += [(call["name"], call["arguments"])] if call else []
        else:
            text[kind] = text.get(kind, "") + (e.get("text") or "")
            rest += e.get("ids") or []
            rest += [p["logprob"] for p in e.get("logprobs") or []]
    return json.dumps([text, rest], sort_keys=True)


broken = []


def check(ok, *what):
    if not ok:
        print("BROKEN:", *what, flush=True)
        broken.append(what)


def sample(n):
    """SAMPLES numbers of 1..n, the same each time."""
    if SAMPLES == 0 or n <= SAMPLES:
        return range(1, n + 1)
    return [1 + i * (n - 1) // (SAMPLES - 1) for i in range(SAMPLES)]


def one_kind(daemon, kind):
    ask(daemon.path, kind)  # what is made once
    outcome, right = ask(daemon.path, kind)
    assert outcome == "done", (kind, right)
    daemon.arm(0)
    ask(daemon.path, kind)
    n = daemon.count()
    seen = {}
    for at in sample(n):
        where = f"{kind}, allocation {at} of {n}"
        daemon.arm(at)
        outcome, told = ask(daemon.path, kind)
        missed = daemon.count() < at
        daemon.arm(0)
        check(outcome in ("done", "no_memory", "closed"), where, told)
        if outcome == "done" and kind in COMPARED:
            check(joined(told) == joined(right), where, told, right)
        if outcome == "closed" and daemon.ended(0.5):
            outcome = "ended"
        again, told = ask(daemon.path, kind)
        if again == "closed" and outcome != "ended" and daemon.ended(HANG):
            outcome = "ended"  # after the answer, or slowly
            again, told = ask(daemon.path, kind)
        check(again == "done", "after " + where, outcome, told)
        if again == "done" and kind in COMPARED:
            check(joined(told) == joined(right), "after " + where, told, right)
        outcome = "not reached" if missed else outcome
        seen[outcome] = seen.get(outcome, 0) + 1
    print(f"{kind}: {n} allocations: {seen}", flush=True)


def at_start(daemon):
    """One fails before it is ready: it serves, or says why not and ends."""
    daemon.stop()
    daemon.arm(0)
    daemon.start()
    n = daemon.count()
    daemon.stop()
    seen = {}
    for at in sample(n):
        daemon.arm(at)
        daemon.launch()
        with subprocess.Popen(
                [STEPCTL, "-s", daemon.path, "ping", "--wait", str(HANG)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as ping:
            first = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid
            status = ping.wait() if first == ping.pid else None
            daemon.arm(0)
            if status == 71:  # it was the ping's own memory
                status = ping_until_ready(daemon.path)
            if status == 0:
                outcome = "ready"
                assert ask(daemon.path, "chat")[0] == "done", (at, n)
                daemon.stop()
            else:
                try:
                    outcome = daemon.process.wait(HANG)
                except subprocess.TimeoutExpired:
                    outcome = 0
                    daemon.process.kill()
                    daemon.process.wait()
                ping.kill()
                check(64 <= outcome <= 78 and daemon.said(),
                      f"start, allocation {at} of {n}: status {outcome}",
                      daemon.said())
        seen[outcome] = seen.get(outcome, 0) + 1
    print(f"start: {n} allocations: {seen}", flush=True)
    daemon.arm(0)
    daemon.start()


def main():
    if not os.path.exists(PRELOAD):
        skip("no shared module was built: " + PRELOAD)
    with open(STEPD, "rb") as f:
        program = f.read()
    if b"__asan_init" in program or b"__tsan_init" in program or \
            b"__msan_init" in program:
        skip("a sanitizer has its own malloc")
    # A socket's path holds 107 bytes.
    short = "/tmp" if len(tempfile.gettempdir()) > 60 else None
    with tempfile.TemporaryDirectory(prefix="stepd-mem.", dir=short) as folder:
        daemon = Daemon(folder)
        daemon.start()
        try:
            for kind in sys.argv[1:] or REQUESTS:
                if kind == "start":
                    at_start(daemon)
                else:
                    one_kind(daemon, kind)
            daemon.stop()
        finally:
            if daemon.process.poll() is None:
                daemon.process.kill()
                daemon.process.wait()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
