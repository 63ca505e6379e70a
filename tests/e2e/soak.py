#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
"""Many clients that do everything clients do, for a while; then: is all of it
still right, and is nothing left behind?

    soak.py SOCKET PID SECONDS [CLIENTS [SEED]]

Every answer that completes must equal its solo run, token for token, with its
logprobs and text; one that was cancelled or ran out of time must be the
beginning of it. When the load has gone, pages, jobs, descriptors, sessions and
memory must be where they were after the warm-up. Prints counts; asserts.

A client is a thread. The seed decides what each does; what meets what is
decided by the machine, which is the point.
"""

import collections
import os
import random
import sys
import threading
import time

from client import Client, Closed, FINAL, HEADER, pack

# Bytes that the process may have grown by since the warm-up: what the allocator
# keeps between requests, not what a leak of any request would come to.
MEMORY_SLACK = 24 << 20
HAPPENS = ("whole", "cancelled", "timeout", "busy")
KEPT = ("append", "fork", "save", "restore")
MORE = 20  # loads in addition, each as long as the warm-up
WARM_UP = 0.25  # of the time

# ---- requests whose answers are known ---------------------------------------

SHARED = ("The following is a list of cities, one a line, with the country in "
          "which each lies, and the river that flows through it. ") * 6


def make_requests(rng, n):
    """Mixed lengths and parameters; many share the beginning of their prompt,
    as conversations do."""
    requests = []
    for i in range(n):
        r = {"seed": i, "want_ids": True, "logprobs": rng.choice([0, 1, 3]),
             "temperature": rng.choice([0, 0.7, 1.0, 5.0]),
             "max_tokens": rng.choice([1, 5, 20, 60, 120])}
        if i % 8 == 5:
            # Long and wide: more than a socket holds unread.
            r.update(temperature=100, max_tokens=350, logprobs=20)
        kind = i % 4
        if kind == 0:
            r["messages"] = [{"role": "user", "content": rng.choice(
                ["What is the capital of Kenya?", "What is 7 plus 5?"])}]
            r["thinking"] = rng.random() < 0.5
        elif kind == 1:
            r["prompt"] = SHARED[:rng.randrange(len(SHARED))]
        elif kind == 2:
            r["prompt"] = SHARED + "number %d " % i * rng.randrange(40)
        else:
            r["prompt"] = "word " * rng.randrange(1, 90) + str(i)
        if rng.random() < 0.3:
            r["drafts"] = rng.randrange(4)
        if rng.random() < 0.3:
            r["top_p"] = 0.9
        if rng.random() < 0.2:
            r["repetition_penalty"] = 1.2
        if rng.random() < 0.2 and r["logprobs"] < 20:
            r["stop"] = ["e"]
        requests.append(r)
    return requests


# A conversation, turn by turn.
TALK = ({"messages": [{"role": "user", "content": "What is 7 plus 5?"}]},
        {"messages": [{"role": "user", "content": "And 3 plus 4?"}]})
HOW = {"seed": 3, "temperature": 0, "max_tokens": 40, "want_ids": True,
       "logprobs": 1}
Answer = collections.namedtuple("Answer", "ids logprobs text finish")


def answer_of(events):
    """An Answer, or the code word of the error that came instead."""
    last = events[-1]
    if last["event"] == "error":
        return last["code"]
    deltas = [e for e in events if e["event"] == "delta"]
    text = {k: "".join(e.get("text") or "" for e in deltas if e["kind"] == k)
            for k in ("content", "reasoning")}
    return Answer([i for e in deltas for i in e.get("ids") or []],
                  [p["logprob"] for e in deltas
                   for p in e.get("logprobs") or []],
                  text, last["finish_reason"])


def talk_alone(watch):
    said, answers = [], []
    for turn in TALK:
        said += turn["messages"]
        a = answer_of(list(watch.request("generate", messages=said, **HOW)))
        answers.append(a)
        said.append({"role": "assistant", "content": a.text["content"],
                     "reasoning_content": a.text["reasoning"]})
    return answers


# ---- the load --------------------------------------------------------------


class Load:
    """What the clients share."""

    def __init__(self, path, requests, alone):
        self.path = path
        self.requests = requests
        self.alone = alone
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.failures = []
        self.stop_at = 0
        self.sessions = False
        self.talk = []  # the answers of TALK, each to the whole conversation

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] += n

    def over(self):
        return time.monotonic() >= self.stop_at or bool(self.failures)

    def check(self, i, events, may_be_cut):
        """A whole answer is its solo run, a cut one the beginning of it."""
        got, want = answer_of(events), self.alone[i]
        if isinstance(got, str):
            # Limits are meant to be met; nothing else may go wrong.
            assert got == "busy", (i, events[-1])
            assert events[-1]["retry_ms"] > 0
            self.count("busy")
            time.sleep(events[-1]["retry_ms"] / 1e4)  # less patient than asked
            return
        if got.finish in ("cancelled", "timeout"):
            assert may_be_cut, (i, got)
            n = len(got.ids)
            assert got.ids == want.ids[:n], (i, got, want)
            assert got.logprobs == want.logprobs[:n], (i, got, want)
            self.count(got.finish)
            return
        assert got == want, (i, self.requests[i], got, want)
        self.count("whole")


class User:
    """One client."""

    def __init__(self, load, seed, k):
        self.unread = False  # an answer of ours waits to be read
        self.load = load
        self.name = f"user-{k}"
        self.rng = random.Random(seed)
        self.conn = None

    def client(self):
        if self.conn is None:
            self.conn = Client(self.load.path)
        return self.conn

    def drop(self):
        if self.conn is not None:
            self.conn.close()
        self.conn = None

    def run(self):
        try:
            while not self.load.over():
                name = self.rng.choices(list(self.ACTS),
                                        list(self.ACTS.values()))[0]
                getattr(self, name)()
                self.load.count(name)
        except Exception as e:  # pylint: disable=broad-except
            with self.load.lock:
                self.load.failures.append((name, repr(e)[:2000]))
        finally:
            self.drop()

    def a_session(self):
        """A name of our own, or one for which others come too."""
        return self.rng.choice([self.name, self.name + "-f"] +
                               [f"shared-{k}" for k in range(3)])

    def submit(self, **more):
        """One of the requests. A higher priority takes the seats and pages of
        lower ones, which are computed again later. A session takes up what it
        has in common with what was there, and gives the same answer."""
        i = self.rng.randrange(len(self.load.requests))
        more["priority"] = self.rng.choice([0, 0, 0, 0, -3, 5])
        if self.load.sessions and not self.unread and self.rng.random() < 0.3:
            more["session"] = self.a_session()
        return i, self.client().submit("generate", **self.load.requests[i],
                                       **more)

    # ---- what a client may do

    def ask(self):
        i, request_id = self.submit()
        self.load.check(i, list(self.client().events_of(request_id)), False)

    def ask_several(self):
        """Some at once over one connection."""
        c = self.client()
        asked = dict(reversed(self.submit()) for _ in range(
            self.rng.randrange(2, 5)))
        events = {r: [] for r in asked}
        while asked:
            e = c.recv()
            r = e["id"]
            events[r].append(e)
            if e["event"] in FINAL:
                self.load.check(asked.pop(r), events[r], False)

    def cancel(self):
        """At any moment: before it is accepted, in prefill, in the answer."""
        c = self.client()
        i, request_id = self.submit()
        events, left = [], self.rng.choice([0, 0, 1, 2, 5, 20])
        while left > 0 and (not events or events[-1]["event"] not in FINAL):
            events.append(c.recv())
            left -= 1
        cancel = c.submit("cancel", target=request_id)
        ended = bool(events) and events[-1]["event"] in FINAL
        answered = False
        while not (ended and answered):
            e = c.recv()
            if e["id"] == cancel:
                answered = True
            else:
                assert e["id"] == request_id and not ended, e
                events.append(e)
                ended = e["event"] in FINAL
        self.load.check(i, events, True)

    def leave(self):
        """Closes the connection in the middle of whatever."""
        self.submit()
        for _ in range(self.rng.choice([0, 0, 1, 3, 10])):
            if self.client().recv()["event"] in FINAL:
                break
        self.drop()

    def read_slowly(self):
        """Wide output that is left unread while others are asked for on a
        second connection; what was paused goes on where it was. It may hold a
        session meanwhile: who leaves that unread must not wait for another,
        whose writer may wait for his."""
        i, request_id = self.submit()
        other, self.conn = self.conn, None
        self.unread = True
        for _ in range(self.rng.randrange(1, 4)):
            self.ask()
        self.unread = False
        self.drop()
        self.conn = other
        self.load.check(i, list(other.events_of(request_id)), False)

    def hurry(self):
        i, request_id = self.submit(timeout_ms=self.rng.choice([1, 10, 100]))
        self.load.check(i, list(self.client().events_of(request_id)), True)

    def babble(self):
        """Bytes that are no frame. The connection ends by an error."""
        body = bytes(self.rng.randrange(256)
                     for _ in range(self.rng.randrange(1, 200)))
        good = pack({"op": "ping", "id": 5})
        data = self.rng.choice([
            HEADER.pack(len(body)) + b"\xc1" + body[1:],
            HEADER.pack(0xffffffff), HEADER.pack(0) + body,
            good[:self.rng.randrange(1, len(good))]])
        c = self.client()
        c.send_raw(data)
        if len(data) >= len(good):
            try:
                while c.recv()["event"] != "error":
                    pass
            except Closed:
                pass
        self.drop()

    def keep(self):
        """What there is to do with sessions. Caps and races between users are
        told as such; a session that is damaged would be `corrupt`."""
        if not self.load.sessions:
            return self.ask()
        c = self.client()
        op = self.rng.choice(["list", "pin", "unpin", "unpin", "save",
                              "restore", "drop", "fork", "append", "append"])
        name = self.a_session()
        if op == "append":
            e = c.last("generate", session=name, append=True, max_tokens=20,
                       messages=[{"role": "user", "content": "And then?"}])
        elif op == "list":
            e = c.last("session_list")
        elif op == "fork":
            e = c.last("session_fork", session=name, to=self.name + "-f")
        else:
            e = c.last("session_" + op, session=name)
        self.load.count(f"{op}: {e.get('code', 'done')}")
        assert e["event"] == "done" or e["code"] in (
            "not_found", "busy", "no_memory", "too_long", "bad_request"), e

    def talk(self):
        """A session of two turns that only we write: the second, appended, is
        the answer to the whole conversation."""
        if not self.load.sessions:
            return self.ask()
        for turn, more in enumerate(TALK):
            e = list(self.client().request(
                "generate", session=self.name + "-t", append=turn > 0,
                **HOW, **more))
            got = answer_of(e)
            if got == "busy":
                return self.load.count("busy")
            assert got == self.load.talk[turn], (turn, e[-1])
        self.load.count("append: done")

    def look(self):
        c = self.client()
        assert c.last("ping")["state"] == "ready"
        assert c.last("status")["event"] == "done"
        assert list(c.request("metrics"))[-1]["event"] == "done"
        e = c.last("tokenize", prompt="a b c")
        assert e.get("count", 0) > 0 or e["code"] == "busy", e
        e = c.last("generate", prompt="x", temprature=1)
        assert e["code"] == "bad_request", e

    ACTS = {"ask": 40, "ask_several": 10, "cancel": 12, "leave": 10,
            "read_slowly": 6, "hurry": 6, "babble": 5, "look": 6, "keep": 16,
            "talk": 4}


def run_load(load, n_clients, seconds, seed):
    load.stop_at = time.monotonic() + seconds
    threads = [threading.Thread(target=User(load, seed * 1000 + k, k).run)
               for k in range(n_clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not load.failures, load.failures[:3]


def met(load, watch):
    """Whether all has happened that a soak is about."""
    kept = all(load.counts[op + ": done"] > 0 for op in KEPT)
    return (kept or not load.sessions) and all(load.counts[what] > 0 for what in HAPPENS) and \
        watch.last("status")["steps"]["preempted"] > 0


# ---- what is left -----------------------------------------------------------


def anonymous_bytes(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as f:
        for line in f:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    raise AssertionError("no RssAnon")


def settle(watch):
    """The status once nothing is in flight and only we are connected."""
    while True:
        s = watch.last("status")
        if not s["jobs"] and s["queued"] == s["running"] == 0 and \
                s["connections"]["open"] == 1:
            return s


def drop_sessions(watch):
    """All there are; how many were left after that."""
    n = 0
    for _ in range(2):
        names = [s["name"] for e in watch.request("session_list")
                 for s in e.get("sessions") or []]
        n = len(names)
        for name in names:
            e = watch.last("session_drop", session=name)
            assert e["event"] == "done", e
    assert n == 0, names


def left(watch, pid):
    settle(watch)
    if "op.session_drop" in watch.hello["features"]:
        drop_sessions(watch)
    s = settle(watch)
    return {"pages": {g: p["total"] - p["free"]
                      for g, p in s["pages"].items() if isinstance(p, dict)},
            "fds": s["open_fds"], "memory": anonymous_bytes(pid)}, s


def main():
    path, pid, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    n_clients = int(sys.argv[4]) if len(sys.argv) > 4 else 64
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else \
        int.from_bytes(os.urandom(4), "big")
    print(f"{n_clients} clients, {seconds:g} s, seed {seed}", flush=True)

    watch = Client(path)
    requests = make_requests(random.Random(seed), 40)
    alone = [answer_of(list(watch.request("generate", **r)))
             for r in requests]
    assert all(isinstance(a, Answer) for a in alone), alone
    load = Load(path, requests, alone)
    load.sessions = "op.session_fork" in watch.hello["features"]
    load.talk = talk_alone(watch)

    run_load(load, n_clients, seconds * WARM_UP, seed)
    before, _ = left(watch, pid)
    run_load(load, n_clients, seconds * (1 - WARM_UP), seed + 1)
    # On a slow machine a short load goes on until it has met everything.
    for more in range(MORE):
        if met(load, watch):
            break
        run_load(load, n_clients, seconds * WARM_UP, seed + 2 + more)
    after, status = left(watch, pid)

    # Still the same answers, alone, from caches that have seen everything.
    for i, r in enumerate(requests):
        assert answer_of(list(watch.request("generate", **r))) == alone[i], i
    metrics = "".join(e.get("text", "") for e in watch.request("metrics"))
    assert '\nstepd_errors_total{code="internal"} 0\n' in metrics, metrics

    for what, n in sorted(load.counts.items()):
        print(f"  {what:20} {n}")
    print(f"  steps {status['steps']['total']}, "
          f"pre-empted {status['steps']['preempted']}, "
          f"prompt tokens {status['tokens']['prompt']}, of them cached "
          f"{status['tokens']['cached']}, drawn "
          f"{status['tokens']['completion']}")
    print(f"  after warm-up {before}")
    print(f"  at the end    {after}", flush=True)
    assert after["pages"] == before["pages"], "pages"
    assert all(n == 0 for n in after["pages"].values()), "pages"
    assert after["fds"] == before["fds"], "descriptors"
    assert after["memory"] <= before["memory"] + MEMORY_SLACK, "memory"
    # The load was what it says.
    for what in HAPPENS:
        assert load.counts[what] > 0, what
    assert status["steps"]["preempted"] > 0, "nothing was pre-empted"
    for op in KEPT if load.sessions else ():
        assert load.counts[op + ": done"] > 0, op


if __name__ == "__main__":
    main()
