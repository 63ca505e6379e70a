#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Who may do what, with real users (fr_76, fr_77, fr_78): in the group by a
# supplementary group, outside of it, two with quotas of their own, an observer,
# an admin, a delegate; and nobody is known by what he says of himself.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

user sue stepd     # supplementary group
user out           # not in the group
user bob stepd
user eve stepd     # watches
user ada stepd     # administers
user gate stepd    # speaks for others
groupadd research
usermod -aG research sue

conf allow_groups=research allow_users=bob,gate observe_users=eve \
    admin_users=ada delegate_users=gate max_in_flight_per_uid=1 \
    test_hold_steps=yes
systemctl start stepd.socket
ready

stepctl_as()
{
    local name=$1

    shift
    as "$name" "$BIN/stepctl" -s "$SOCK" "$@"
}

# The first gate: the socket's mode. The cure is named.
expect_status 77 stepctl_as out ping 2>"$tmp/err"
grep -q 'join the group stepd' "$tmp/err" || fail "$(cat "$tmp/err")"
# The second: the lists.
stepctl_as sue tokenize x >/dev/null
stepctl_as bob tokenize x >/dev/null
stepctl_as eve status >/dev/null
stepctl_as eve metrics >/dev/null
expect_status 77 stepctl_as eve tokenize x
expect_status 77 stepctl_as bob drain
expect_status 77 stepctl_as bob reload
stepctl_as ada reload >/dev/null
usermod -aG stepd out
expect_status 77 stepctl_as out status 2>"$tmp/err"
grep -q '^stepctl: denied: this user may not use this daemon' "$tmp/err" ||
    fail "$(cat "$tmp/err")"
REFUSED=93b1d6e8f04c4c2b8e5a7d9012f4c6ab
until_true has_logged MESSAGE_ID=$REFUSED "UID=$(id -u out)"

# Quotas are each user's own: bob's one request holds nobody else up, and his
# second is `busy`.
stepctl_as bob complete --max-tokens 2 --json x >"$tmp/bob" 2>&1 &
bob=$!
until_true grep -q accepted "$tmp/bob"
expect_status 75 stepctl_as bob complete --max-tokens 2 x
stepctl_as sue complete --max-tokens 2 --json x >"$tmp/sue" 2>&1 &
sue=$!
until_true grep -q accepted "$tmp/sue"

# Others' jobs: not seen, not cancelled; an admin sees and cancels.
job=$(sed -n 's/.*"job": *\([0-9]*\).*/\1/p' "$tmp/bob" | head -n 1)
[ -n "$job" ] || fail "no job in $(cat "$tmp/bob")"
stepctl_as sue status | has "uid *$(id -u bob)" && fail "sue sees bob's job"
expect_status 66 stepctl_as sue cancel "$job" # as one that is not there
stepctl_as ada status | has -E "jobs.*uid +$(id -u bob)" ||
    fail "ada does not see bob's job"
stepctl_as ada cancel "$job" >/dev/null
wait "$bob" && fail "bob was not cancelled"
ctl status | has "uid *$(id -u sue)" || fail "sue's job went, too"
systemctl kill --kill-who=main -s USR2 stepd.service
wait "$sue" || fail "sue: $(cat "$tmp/sue")"

# A delegate may name a tenant, another may not; root of the host is root.
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$srcdir/tests/e2e \
    "$PYTHON3" - "$SOCK" "$(id -u bob)" "$(id -u gate)" "$(getent group stepd |
    cut -d: -f3)" <<'END'
import os
import sys
from client import Client

path, bob, gate, group = sys.argv[1], *map(int, sys.argv[2:])


def ask(uid):
    """The code of a request that names a tenant, as that user."""
    r, w = os.pipe()
    if os.fork() == 0:
        os.setgroups([group])
        os.setresgid(group, group, group)
        os.setresuid(uid, uid, uid)
        with Client(path) as c:
            e = list(c.request("generate", prompt="a", max_tokens=1,
                               tenant="someone"))
            os.write(w, e[-1].get("code", "done").encode())
        os._exit(0)
    os.close(w)
    os.wait()
    return os.read(r, 100).decode()


print("tenant:", "gate", ask(gate), "bob", ask(bob))
assert ask(gate) == "done"
assert ask(bob) == "denied"
END

# Nobody (65534) stands for many and is refused, whatever the lists say.
conf allow_users=nobody
systemctl restart stepd.service
ready
expect_status 77 setpriv --reuid 65534 --regid stepd --clear-groups \
    "$BIN/stepctl" -s "$SOCK" tokenize x
expect_clean_run
