#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# idle_exit: a daemon that nobody asks ends with 0, and whoever holds the socket
# starts it again at the next connection. A request that runs keeps it, a
# connection that is only open does not, nor does a look at status.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
echo "kv_memory = $KV_MEMORY" >"$tmp/conf"
py "$STEPD" "$MODEL" "$tmp" <<'END'
import os
import signal
import socket
import subprocess
import sys
from client import Client, FINAL

stepd, model, tmp = sys.argv[1:]
path = tmp + "/s"
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(path)
listener.listen(16)


def wake(log, *settings):
    """What a socket unit does at the first connection."""
    args = [stepd, "--config", tmp + "/conf", "--model", model]
    for s in settings:
        args += ["--set", s]
    with open(log, "wb") as f:
        # sh, for LISTEN_PID is the number of the process that gets it.
        return subprocess.Popen(
            ["sh", "-c", 'LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"', "sh"] + args,
            stderr=f, pass_fds=(3,),
            preexec_fn=lambda: os.dup2(listener.fileno(), 3))


# The smallest limit there is: idle for a millisecond is idle enough, so what
# keeps it from ending is the request alone, step by step.
p = wake(tmp + "/1.log", "idle_exit=1ms", "test_hold_load=yes",
         "test_hold_steps=yes")
looker = Client(path)
c = Client(path)
request = c.submit("generate", prompt="One two", temperature=0, max_tokens=6,
                   want_ids=True)
while looker.last("status")["queued"] != 1:
    pass
p.send_signal(signal.SIGUSR1)  # the load goes on
events = []
while not events or events[-1]["event"] not in FINAL:
    e = c.recv()
    events.append(e)
    if e["event"] == "accepted":
        for _ in range(50):
            assert looker.last("status")["state"] == "ready"
        p.send_signal(signal.SIGUSR2)  # steps too
assert events[-1]["event"] == "done", events
ids = [i for e in events for i in e.get("ids") or []]
assert len(ids) > 1, ids
assert p.wait(120) == 0
assert c.at_end() and looker.at_end()

# The socket is there, and the next one to come starts it.
c = Client(path, hello=False)
p = wake(tmp + "/2.log", "idle_exit=1h")
c.say_hello()
assert c.generate(prompt="One two", temperature=0, max_tokens=6,
                  want_ids=True)[2] == ids
p.send_signal(signal.SIGTERM)
assert p.wait(120) == 0



def pin(c):
    """A session, pinned: asked for at once, so that there is no idle moment."""
    c.submit("generate", prompt="One two", temperature=0, max_tokens=6,
             session="kept")
    last = c.submit("session_pin", session="kept")
    while True:
        e = c.recv()
        if e["id"] == last and e["event"] in FINAL:
            assert e["pinned"], e
            return


# A pinned conversation that cannot be saved keeps it, for nobody asked for this
# end; once the pin is taken back it goes.
p = wake(tmp + "/4.log", "idle_exit=1ms")
c = Client(path)
pin(c)
while b"the daemon stays: 1 pinned" not in open(tmp + "/4.log", "rb").read():
    assert p.poll() is None
assert not c.last("session_unpin", session="kept")["pinned"]
assert p.wait(120) == 0

# With a folder it is saved first.
os.mkdir(tmp + "/state")
p = wake(tmp + "/5.log", "idle_exit=1ms", "state_dir=" + tmp + "/state")
c = Client(path)
pin(c)
assert p.wait(120) == 0
p = wake(tmp + "/6.log", "idle_exit=1h", "state_dir=" + tmp + "/state")
c = Client(path)
assert c.last("session_restore", session="kept")["cached_tokens"] > 0
p.send_signal(signal.SIGTERM)
assert p.wait(120) == 0

# Nobody asks at all.
p = wake(tmp + "/3.log", "idle_exit=1ms")
assert p.wait(120) == 0
END
for i in 1 3; do
    grep -Eq 'idle for [0-9]+ s: the end' "$tmp/$i.log" ||
        fail "the log does not say why: $(cat "$tmp/$i.log")"
done
if grep -q 'nothing will start' "$tmp/1.log"; then
    fail "a socket that was handed over is said not to be"
fi

# Without a socket unit it says so.
launch_stepd --set idle_exit=1ms
reap_stepd stepd 0
grep -q 'nothing will start this daemon again' "$tmp/stepd.log" ||
    fail "no warning: $(cat "$tmp/stepd.log")"
