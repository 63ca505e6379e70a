#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Failure drills, one after the other in one box. After each the next start
# serves, and nothing is in /run/stepd but the socket of stepd.socket (fr_73,
# fr_75, fr_92).

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

SHARD=$MODEL/model-00002.safetensors

kill_main()
{
    systemctl kill --kill-who=main -s "$1" stepd.service
}

# hold_request FILE: a request that is held in its first step.
hold_request()
{
    rm -f "$1" # what an earlier one was told is no answer
    ctl complete --max-tokens 3 --json x >"$1" 2>&1 &
    held=$!
    until_true grep -qs accepted "$1"
}

# serves DRILL: with the plain configuration, and after a start of its own.
serves()
{
    conf
    systemctl reset-failed stepd.service 2>/dev/null || :
    systemctl restart stepd.service || {
        show_logs
        fail "$1: the next start"
    }
    ready
    ctl complete --temperature 0 --max-tokens 4 'The capital of' >"$tmp/text" \
        2>/dev/null
    if [ ! -e "$tmp/first" ]; then
        cp "$tmp/text" "$tmp/first"
    fi
    cmp -s "$tmp/first" "$tmp/text" || fail "$1: another answer than before"
    [ ! -e "$tmp/talk" ] || go_on >"$tmp/now"
    cmp -s "$tmp/talk" "$tmp/now" || fail "$1: the session is $(cat "$tmp/now")"
    expect_clean_run
    echo "drill: $1"
}

# go_on: one more turn of the session that was saved before the first drill: how
# much of it was there, and the answer. The turn itself is saved by nobody, so it
# is the same after each start.
go_on()
{
    ctl chat --session kept --append --temperature 0 --max-tokens 20 --json \
        'And 3 plus 4?' >"$tmp/turn" 2>"$tmp/err" || :
    "$PYTHON3" -c '
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
print(events[-1]["usage"]["cached_tokens"],
      "".join(e.get("text", "") + e.get("reasoning", "") for e in events))' \
        "$tmp/turn" || cat "$tmp/err"
}

dropin stepd.service RestartSec=100ms
systemctl start stepd.socket
conf session_disk_floor=0
ready
ctl chat --session kept --temperature 0 'What is 7 plus 8?' >/dev/null 2>&1
ctl sessions save kept >/dev/null
systemctl restart stepd.service
go_on >"$tmp/talk"
grep -Eq '^[1-9][0-9]* .' "$tmp/talk" || fail "the session: $(cat "$tmp/talk")"
serves "no failure at all"

# ---- kill -9
conf test_hold_load=yes
systemctl stop stepd.service
ctl complete --max-tokens 1 x >"$tmp/out" 2>&1 &
client=$!
until_true is_prop ActiveState activating
until_true ctl status >/dev/null
conf
kill_main KILL
expect_status 69 wait "$client"
until_true is_prop NRestarts 1
ready
serves "kill -9 in the load"

conf test_hold_steps=yes
systemctl restart stepd.service
ready
hold_request "$tmp/out"
conf
kill_main KILL
expect_status 69 wait "$held"
ready
serves "kill -9 in the prefill"

# ---- stopped with requests in flight: they get drain_timeout, then an end
conf test_hold_steps=yes drain_timeout=100ms
systemctl restart stepd.service
ready
hold_request "$tmp/out"
systemctl stop stepd.service
expect_status 75 wait "$held"
grep -Eq 'draining|cancelled' "$tmp/out" || fail "$(cat "$tmp/out")"
expect_prop Result success
serves "stopped with requests in flight"

# ---- shards, under a running daemon
cp "$SHARD" "$SHARD.new"
mv "$SHARD.new" "$SHARD"
ctl complete --max-tokens 4 x >/dev/null 2>&1 || fail "renamed over is harmless"
expect_prop NRestarts 0
serves "a shard renamed over"

for how in truncated rewritten; do
    cp "$SHARD" /srv/shard.good
    if [ "$how" = truncated ]; then
        truncate -s -4096 "$SHARD"
    else
        # The same bytes, in place: the time of the change is what is seen.
        cat /srv/shard.good >"$SHARD"
        touch -d '2030-01-01' "$SHARD"
    fi
    status=0
    ctl complete --max-tokens 4 x >/dev/null 2>"$tmp/err" || status=$?
    case $status in
    65 | 69) ;; # told `corrupt`, or cut off by the end
    *) fail "$how: status $status: $(cat "$tmp/err")" ;;
    esac
    if [ "$how" = truncated ]; then
        # Started again it finds the damage, and says so to who comes.
        until_true is_prop ExecMainStatus 65
        expect_status 69 ctl complete --max-tokens 4 x 2>"$tmp/err"
        grep -q 'unavailable: .*model-00002' "$tmp/err" || fail "$(cat "$tmp/err")"
    else
        until_true logged 'changed'
    fi
    cp /srv/shard.good "$SHARD"
    serves "a shard $how"
done

# ---- the configuration breaks under a running daemon: the reload is refused
# and changes nothing, and the next start tells who comes
conf max_queue=none
expect_status 1 systemctl reload stepd.service
ctl complete --max-tokens 1 x >/dev/null 2>&1 || fail "after a refused reload"
expect_prop NRestarts 0
systemctl stop stepd.service
expect_status 69 ctl complete --max-tokens 1 x 2>"$tmp/err"
grep -q "unavailable: .*$CONF:2: max_queue" "$tmp/err" || fail "$(cat "$tmp/err")"
until_true is_prop ExecMainStatus 78
serves "a broken configuration at a reload"

# ---- a thousand connects while it starts: eight users with 125 each, most of
# them before there is a process, the rest while it loads. Nobody is refused,
# each is told `loading`, and each is answered.
systemctl stop stepd.service
for i in 1 2 3 4 5 6 7 8; do
    user "crowd$i" stepd
done
mkfifo /srv/go
dropin stepd.service "ExecStartPre=/bin/sh -c 'read x </srv/go'"
conf test_hold_load=yes max_queue=1024
systemctl start --no-block stepd.service
until_true is_prop ActiveState activating
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$srcdir/tests/e2e \
    "$PYTHON3" - "$SOCK" <<'END'
import os
import pwd
import resource
import signal
import subprocess
import sys
from client import Client

resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
users = [pwd.getpwnam(f"crowd{i}") for i in range(1, 9)]
group = os.stat(sys.argv[1]).st_gid
crowd = []


def come(n):
    """n connects of each user, none of which waits."""
    for u in users:
        os.setegid(group)
        os.seteuid(u.pw_uid)
        crowd.extend(Client(sys.argv[1], hello=False) for _ in range(n))
        os.seteuid(0)
        os.setegid(0)


come(100)
with open("/srv/go", "w") as f:
    f.write("\n")
assert crowd[0].say_hello()["event"] == "hello"  # there is a process
come(25)
for c in crowd[1:]:
    assert c.say_hello()["event"] == "hello"
assert {c.last("ping")["state"] for c in crowd} == {"loading"}
for c in crowd:
    c.submit("generate", prompt="a", max_tokens=1, temperature=0)
crowd[0].last("ping")
pid = subprocess.check_output(["systemctl", "show", "-P", "MainPID",
                               "stepd.service"])
os.kill(int(pid), signal.SIGUSR1)
ends = []
for c in crowd:
    while True:
        e = c.recv()
        if e["event"] in ("done", "error") and e["id"] != 0:
            ends.append(e.get("code") or e["finish_reason"])
            break
print(len(crowd), "connects while it starts:", {e: ends.count(e) for e in ends})
assert ends == ["length"] * 1000, ends
END
expect_prop NRestarts 0
sed -i '/ExecStartPre/d' /etc/systemd/system/stepd.service.d/test.conf
systemctl daemon-reload
serves "1,000 connects while it starts"

# ---- a thousand rapid connects, at rest
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$srcdir/tests/e2e \
    "$PYTHON3" - "$SOCK" <<'END'
import socket, sys
for i in range(1000):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect(sys.argv[1])
    if i % 3 == 0:
        s.send(b"\0\0\0\5garbage"[: i % 12])
    s.close()
END
ctl tokenize x >/dev/null || fail "after a thousand connects"
expect_prop NRestarts 0
serves "1,000 rapid connects"

# ---- out of memory: the kernel ends it, and it is the unit's own affair
if grep -qw memory /sys/fs/cgroup/cgroup.controllers; then
    systemctl stop stepd.service
    dropin stepd.service MemoryMax=8M MemorySwapMax=0 Restart=no
    conf weights=copy
    systemctl start stepd.service && fail "8 MB are enough"
    expect_prop Result oom-kill
    sed -i '/^MemoryMax=/d; /^MemorySwapMax=/d; /^Restart=/d' \
        /etc/systemd/system/stepd.service.d/test.conf
    systemctl daemon-reload
    serves "killed by the OOM killer"
else
    echo "SKIP: the OOM killer: no memory controller here"
fi

# ---- journald stopped: the log is lost, the service is not
systemctl stop systemd-journald.socket systemd-journald-dev-log.socket \
    systemd-journald-audit.socket systemd-journald.service 2>/dev/null || :
for _ in $(seq 40); do
    ctl complete --max-tokens 1 x >/dev/null 2>&1 || fail "without a journal"
done
systemctl start systemd-journald.service
serves "journald stopped"

# ---- the model's folder is missing at boot, and comes later
mv "$MODEL" /srv/away
systemctl stop stepd.service
expect_status 69 ctl complete --max-tokens 1 x 2>"$tmp/err"
grep -q "unavailable: .*$MODEL" "$tmp/err" || fail "$(cat "$tmp/err")"
mv /srv/away "$MODEL"
until_true is_prop ActiveState failed
ready
serves "the model's folder was missing at boot"

# ---- sessions: killed while it saves, and a disk that is full
conf session_disk_floor=0
systemctl restart stepd.service
ready
ctl chat --session s --temperature 0 --max-tokens 20 'What is 7 plus 8?' \
    >/dev/null 2>&1
ctl sessions save s >/dev/null
for _ in 1 2 3; do
    ctl sessions save s >/dev/null 2>&1 &
    client=$!
    kill_main KILL
    wait "$client" || :
    ready
    ctl chat --session s --append --max-tokens 2 'And?' >/dev/null 2>"$tmp/err" ||
        fail "the session after kill -9 in a save: $(cat "$tmp/err")"
    ctl sessions save s >/dev/null
done
serves "kill -9 in a save"

systemctl stop stepd.service
mount -t tmpfs -o "size=64k,mode=700,uid=$(id -u stepd),gid=$(id -g stepd)" \
    tmpfs /var/lib/stepd
conf session_disk_floor=0
systemctl start stepd.service
ready
ctl chat --session full --temperature 0 --max-tokens 20 'What is 7 plus 8?' \
    >/dev/null 2>&1
if ctl sessions save full >/dev/null 2>"$tmp/err"; then
    fail "a save on a full disk succeeded"
fi
grep -q . "$tmp/err" || fail "a failed save says nothing"
ctl chat --session full --append --max-tokens 2 'And?' >/dev/null 2>&1 ||
    fail "the session after a failed save"
expect_prop NRestarts 0
systemctl stop stepd.service
umount /var/lib/stepd
serves "disk full at a save"
