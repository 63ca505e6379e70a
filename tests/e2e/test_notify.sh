#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# A fake service manager: it hands over the socket, hears READY=1 exactly once
# and only when the daemon serves (field report 81), hears the load's progress
# (82), and keeps the socket when the daemon has gone.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
if "$STEPD" --version | has 'libsystemd *no'; then
    skip "stepd was built without libsystemd"
fi
echo "kv_memory = $KV_MEMORY" >"$tmp/stepd.conf"
py "$STEPD" "$MODEL" "$tmp" <<'END'
import os
import signal
import socket
import sys
from client import Client

stepd, model, tmp = sys.argv[1:]
path = tmp + "/unit.sock"

manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(tmp + "/notify")
manager.settimeout(120)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(path)
listener.listen(16)
inode = os.stat(path).st_ino


def start(*more):
    pid = os.fork()
    if pid == 0:
        os.dup2(listener.fileno(), 3)
        os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1",
                          NOTIFY_SOCKET=tmp + "/notify")
        log = os.open(tmp + "/unit.log", os.O_CREAT | os.O_WRONLY, 0o600)
        os.dup2(log, 2)
        os.execv(stepd, [stepd, "--config", tmp + "/stepd.conf", "--model",
                         model, "--socket", tmp + "/unused.sock", *more])
    return pid


def hear():
    return manager.recv(4096).decode().split("\n")


def hear_until(line):
    seen = []
    while line not in seen:
        seen += hear()
    return seen


def hear_rest():
    seen = []
    manager.setblocking(False)
    try:
        while True:
            seen += hear()
    except BlockingIOError:
        manager.settimeout(120)
        return seen


# A connection that was made before the daemon ran is served by it.
early = Client(path, hello=False)
early.send({"op": "hello", "id": 1, "version_min": 1, "version_max": 1})
pid = start("--set", "test_hold_load=yes")
assert early.recv()["event"] == "hello"
assert early.last("ping")["state"] == "loading"

# While it loads: what goes on is told, READY is not; and this load, which is
# held, sends no heartbeat: two rounds of its clock without one, soon.
rounds = []
while rounds[-2:] != ["STATUS", "STATUS"]:
    line = hear()[0]
    assert line.startswith(("STATUS=Loading: ", "EXTEND_TIMEOUT_USEC=")), line
    rounds.append(line.split("=")[0])
    assert len(rounds) < 20, "a heartbeat without progress"
assert "READY=1" not in hear_rest()

os.kill(pid, signal.SIGUSR1)
seen = hear_until("READY=1")
assert early.last("ping")["state"] == "ready"
assert seen.count("READY=1") == 1
assert any(s.startswith("STATUS=Serving ") for s in seen), seen

# Nothing repeats it: not work, not a drain and its end.
early.generate(prompt="a", max_tokens=3)
early.last("drain")
early.last("drain", off=True)
early.generate(prompt="a", max_tokens=3)
os.kill(pid, signal.SIGTERM)
seen = hear_until("STOPPING=1")
assert os.waitpid(pid, 0)[1] == 0
assert "READY=1" not in seen + hear_rest()
early.close()

# The socket is the unit's: same file, and it still takes connections, for the
# next instance.
assert os.stat(path).st_ino == inode
assert not os.path.exists(tmp + "/unused.sock")
waiting = Client(path, hello=False)
waiting.send({"op": "hello", "id": 1, "version_min": 1, "version_max": 1})
pid = start()
assert waiting.recv()["event"] == "hello"
hear_until("READY=1")
os.kill(pid, signal.SIGTERM)
assert os.waitpid(pid, 0)[1] == 0

# A start that cannot succeed: whoever waits is told the cause, by a daemon that
# has no configuration, and by one that has no model; then it ends by itself.
listener.close()
os.unlink(path)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
listener.bind(path)
listener.listen(16)
for more, status, word in ((("--set", "max_queue=none"), 78, "max_queue"),
                           (("--model", tmp + "/none"), 65, "none")):
    waiting = [Client(path, hello=False) for _ in range(3)]
    for c in waiting:
        c.send({"op": "hello", "id": 1, "version_min": 1, "version_max": 1})
        c.send({"op": "generate", "id": 2, "prompt": "a"})
    pid = start(*more)
    for c in waiting:
        e = c.recv()
        while e["event"] not in ("error", "done"):
            e = c.recv()
        assert e["code"] == "unavailable" and word in e["message"], e
        c.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == status
    assert any(s.startswith("STATUS=Failed: ") for s in hear_rest())
END
