#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The socket file, from outside: dead ones are replaced, live ones and what is no
# socket are left alone (field report 73), the mode does not follow the umask and
# of two starters one wins (75), the group can connect and who cannot is told
# which (76), who is not on a list is told `denied` (78), whatever he sends (77).

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack

# ---- fr_73: kill -9 leaves a dead socket; the next start takes its place
start_stepd
kill -KILL "$stepd_pid"
wait "$stepd_pid" || :
unset "stepd_pids[stepd]"
[ -S "$sock" ] || fail "kill -9 should leave the socket file"
start_stepd
[ "$(ctl ping)" = ready ] || fail "no answer on the new socket"

# ---- fr_73, fr_75: a second daemon refuses, and the first does not notice
launch_stepd -n second --socket "$tmp/stepd.sock"
reap_stepd second 78
wait_for_line "$tmp/second.log" 'already running'
[ "$("$STEPCTL" -s "$tmp/stepd.sock" ping)" = ready ] ||
    fail "the first daemon lost its socket"
sock=$tmp/stepd.sock
stop_stepd

# ---- fr_73: what is no socket is left alone, with the reason in the log
echo precious >"$tmp/file.sock"
launch_stepd -n file
reap_stepd file 78
wait_for_line "$tmp/file.log" 'file\.sock exists and is not a socket'
[ "$(cat "$tmp/file.sock")" = precious ] || fail "the file was touched"
ln -s /nonexistent "$tmp/link.sock"
launch_stepd -n link
reap_stepd link 78
[ -L "$tmp/link.sock" ] || fail "the link was touched"
launch_stepd -n nodir --socket "$tmp/no/such/dir.sock"
reap_stepd nodir 78
wait_for_line "$tmp/nodir.log" 'dir\.sock.*No such file or directory'

# ---- fr_75: mode by configuration, not by umask
for mask in 0000 0777; do
    (umask "$mask" && exec "$STEPD" --model "$MODEL" \
        --config "$tmp/stepd.conf" --socket "$tmp/mask.sock" \
        --set kv_memory="$KV_MEMORY" --set socket_mode=0620 \
        2>"$tmp/mask$mask.log") &
    pid=$!
    wait_for_line "$tmp/mask$mask.log" ' ready after '
    mode=$(stat -c %a "$tmp/mask.sock")
    kill -TERM "$pid"
    wait "$pid" || fail "stepd ended badly with umask $mask"
    [ "$mode" = 620 ] || fail "mode $mode with umask $mask"
    chmod u+rw "$tmp/mask$mask.log"
done

# ---- fr_75: two daemons at once over a dead socket: one serves
cp -p "$tmp/stepd.conf" "$tmp/race.conf"
start_stepd -n dead
kill -KILL "$stepd_pid"
wait "$stepd_pid" || :
unset "stepd_pids[dead]"
launch_stepd -n one --socket "$tmp/dead.sock"
one=$stepd_pid
launch_stepd -n two --socket "$tmp/dead.sock"
two=$stepd_pid
lost=0
wait -n -p ended "$one" "$two" || lost=$?
[ "$lost" -eq 78 ] || fail "the loser ended with $lost"
if [ "$ended" = "$one" ]; then
    unset "stepd_pids[one]"
    winner=two
else
    unset "stepd_pids[two]"
    winner=one
fi
"$STEPCTL" -s "$tmp/dead.sock" ping --wait "$WAIT_SECONDS" >/dev/null ||
    fail "the winner does not serve"
stop_stepd "$winner"
[ ! -e "$tmp/dead.sock" ] || fail "the socket is left"

# ---- fr_76, fr_77, fr_78: other users. Only root can be them.
if [ "$(id -u)" -ne 0 ]; then
    echo "note: not root, so no other user connects here"
    exit 0
fi
group=$(getent group users | cut -d: -f3)
[ -n "$group" ] || skip "no group users here, as every Linux has"
chmod 0711 "$tmp"
start_stepd -n gates --set socket_group=users --set socket_mode=0660 \
    --set allow_users=5001,5002 --set observe_users=5003 \
    --set admin_users=5004 --set log_level=debug
py "$sock" "$group" <<'END'
import os
import sys
from client import Client, assert_error

path, group = sys.argv[1], int(sys.argv[2])


def as_user(uid, groups, fn):
    """Runs fn as somebody else, in a child; its result must be true."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups(groups)
            os.setgid(uid)
            os.setuid(uid)
            status = 0 if fn() else 1
        except BaseException as e:
            print(f"uid {uid}: {type(e).__name__}: {e}", file=sys.stderr)
        os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0, f"as uid {uid}"


def refused_by_mode():
    try:
        Client(path)
    except PermissionError:
        return True


def may_generate():
    with Client(path) as c:
        assert_error(c.last("drain"), "denied", "op")
        return c.generate(prompt="a", max_tokens=2)[3]["event"] == "done"


def denied():
    # Also with every word that sounds like a right.
    c = Client(path, hello=False)
    assert_error(c.recv(), "denied", request_id=0)
    assert c.at_end()
    c = Client(path, hello=False)
    try:
        c.send({"op": "hello", "id": 1, "version_min": 1, "version_max": 1,
                "client_name": "root", "x_uid": 0, "x_token": "admin"})
    except BrokenPipeError:
        pass
    assert_error(c.recv(), "denied", request_id=0)
    return c.at_end()


def observes():
    with Client(path) as c:
        assert_error(c.last("generate", prompt="a"), "denied", "op")
        assert_error(c.last("cancel", job=1), "denied", "op")
        assert c.last("status")["state"] == "ready"
        return c.last("metrics")["event"] == "done"


def administers():
    with Client(path) as c:
        assert c.last("drain")["state"] == "draining"
        assert_error(c.last("generate", prompt="a"), "draining")
        assert c.last("drain", off=True)["state"] == "ready"
        return c.generate(prompt="a", max_tokens=2)[3]["event"] == "done"


as_user(5001, [], refused_by_mode)       # on the list, not in the group
as_user(5001, [group], may_generate)      # through a supplementary group
as_user(5002, [1, group, 7], may_generate)
as_user(5005, [group], denied)            # in the group, not on the list
as_user(5003, [group], observes)
as_user(5004, [group], administers)
as_user(65534, [group], denied)
END
# What stepctl says to those two.
status=0
setpriv --reuid 5005 --regid "$group" --clear-groups -- \
    "$STEPCTL" -s "$sock" ping 2>"$tmp/said" || status=$?
[ "$status" -eq 77 ] || fail "denied is exit $status: $(cat "$tmp/said")"
status=0
setpriv --reuid 5001 --regid 5001 --clear-groups -- \
    "$STEPCTL" -s "$sock" ping 2>"$tmp/said" || status=$?
[ "$status" -eq 77 ] || fail "permission denied is exit $status"
grep -qw users "$tmp/said" || fail "no group is named: $(cat "$tmp/said")"
stop_stepd gates
