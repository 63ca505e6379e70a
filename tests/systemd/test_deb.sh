#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The packages of `make deb`: installed with apt, started by the first connect,
# asked, built against, upgraded while it serves (a pinned session goes on),
# removed, purged without a trace; lintian finds no error.

STEPD_NO_INSTALL=1
# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

debs=("$builddir"/deb/*.deb)
[ -e "${debs[0]}" ] || skip "no packages: make deb, which needs debhelper"
BIN=/usr/bin
rm -f /usr/sbin/policy-rc.d # what a container has, and a host has not
CONF=/etc/stepd/stepd.conf
cp -r "$srcdir/tests/data/step-tiny" "$MODEL"

apt_get()
{
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0 "$@" \
        >"$tmp/apt" 2>&1 || {
        cat "$tmp/apt" >&2
        fail "apt-get $1"
    }
}

pick()
{
    find "$1" -name "*.deb" ! -name '*-dbgsym_*'
}

# ---- installed: the socket listens, nothing is loaded, the cause is told
mapfile -t debs < <(pick "$builddir/deb")
names=(stepd stepctl libstepclient0 libstepclient-dev)
if ls "$builddir"/deb/stepd-cuda_*.deb >/dev/null 2>&1; then
    names+=(stepd-cuda)
else
    echo "SKIP: stepd-cuda: this tree was configured without nvcc"
fi
[ "${#debs[@]}" -eq "${#names[@]}" ] || fail "packages: ${debs[*]}"
apt_get install --no-install-recommends "${debs[@]}"
systemctl -q is-enabled stepd.socket || fail "stepd.socket is not enabled"
systemctl -q is-active stepd.socket || fail "stepd.socket does not listen"
expect_prop ActiveState inactive
[ "$(stat -c '%a %U %G' "$SOCK")" = "660 stepd stepd" ] || fail "the socket"
expect_status 69 ctl chat Hi 2>"$tmp/err"
grep -q 'unavailable: .*no model' "$tmp/err" || fail "$(cat "$tmp/err")"
[ -z "$(find /etc/systemd/user -name 'stepd*')" ] ||
    fail "every user would have a daemon of his own"
for page in stepd.8 stepctl.1 stepd.conf.5 stepd-protocol.7 libstepclient.3; do
    ls "/usr/share/man/man${page##*.}/$page"* >/dev/null || fail "no $page"
done

# ---- configured and asked, by a user of the group; built against
printf '%s\n' "model = $MODEL" 'session_disk_floor = 0' >>"$CONF"
user ann stepd
until_true is_prop ActiveState failed
as ann stepctl ping --wait "$WAIT_SECONDS" | has ready || fail "not ready"
as ann stepctl chat --temperature 0 --no-thinking 'What is 7 plus 8?' |
    grep -q 15 || fail "the answer"
# With stepd-cuda the sandbox lets the driver in, and where there is no device
# the service answers on the CPU all the same.
cuda=$([ "${#names[@]}" -eq 5 ] && echo no || echo yes)
expect_prop MemoryDenyWriteExecute "$cuda"
expect_prop PrivateDevices "$cuda"
expect_prop DevicePolicy closed
cat >"$tmp/x.c" <<'END'
#include <stdio.h>
#include <stepd/client.h>
int main(void)
{
    struct step_client *c;
    int err = step_client_create(&c);
    if (err == 0) {
        err = step_client_connect(c, NULL);
    }
    printf("%s\n", step_strerror(err));
    step_client_destroy(c);
    return err != 0;
}
END
if command -v gcc >/dev/null; then
    # shellcheck disable=SC2046 # words, on purpose
    gcc -o "$tmp/x" "$tmp/x.c" $(pkg-config --cflags --libs stepclient)
    "$tmp/x" || fail "a program against libstepclient-dev"
fi

# ---- an instance and the metrics' socket, enabled as README has it
echo "model = $MODEL" >/etc/stepd/second.conf
systemctl enable --now stepd@second.socket stepd-metrics.socket 2>/dev/null
as ann stepctl -s second ping --wait "$WAIT_SECONDS" >/dev/null
second=$(prop MainPID stepd@second.service)

# ---- upgraded while it serves: same socket, another process, and the pinned
# session goes on where it was: its tokens are not computed again
inode=$(stat -c %i "$SOCK")
pid=$(main_pid)
as ann stepctl chat --session talk --temperature 0 \
    'What is the capital of Kenya?' >/dev/null 2>&1
as ann stepctl sessions pin talk >/dev/null
mkdir "$tmp/new"
for deb in "${debs[@]}"; do
    dpkg-deb -R "$deb" "$tmp/tree"
    sed -i -E 's/^(Version: .*|.*\(= [^)]*)-1(\)?)/\1-2\2/; s/-1\)/-2)/g' \
        "$tmp/tree/DEBIAN/control"
    dpkg-deb --root-owner-group -b "$tmp/tree" "$tmp/new/$(basename "$deb")" \
        >/dev/null
    rm -rf "$tmp/tree"
done
mapfile -t newer < <(pick "$tmp/new")
apt_get install "${newer[@]}"
[ "$(dpkg-query -W -f '${Version}' stepd)" = 0.1.0-2 ] || fail "no upgrade"
[ "$(stat -c %i "$SOCK")" = "$inode" ] || fail "the socket was made anew"
until_true is_prop ActiveState active
[ "$(main_pid)" != "$pid" ] || fail "the old daemon runs on"
as ann stepctl -s second ping --wait "$WAIT_SECONDS" >/dev/null
[ "$(prop MainPID stepd@second.service)" != "$second" ] ||
    fail "the old instance runs on"
grep -q "^model = $MODEL" "$CONF" || fail "the configuration was lost"
as ann stepctl ping --wait "$WAIT_SECONDS" >/dev/null
as ann stepctl chat --session talk --append --temperature 0 --json \
    'What is 7 plus 8?' >"$tmp/turn" 2>"$tmp/err" ||
    fail "the session after the upgrade: $(cat "$tmp/err")"
cached=$("$PYTHON3" -c '
import json, sys
print(json.loads(open(sys.argv[1]).read().splitlines()[-1])
      ["usage"]["cached_tokens"])' "$tmp/turn")
[ "$cached" -gt 0 ] || fail "the session is computed again: $(cat "$tmp/turn")"
echo "cached tokens of the pinned session after the upgrade: $cached"

# ---- removed: nothing runs or listens, configuration and sessions stay
apt_get remove "${names[@]}"
[ ! -e "$SOCK" ] || fail "the socket is left"
[ ! -e /run/stepd/second.sock ] || fail "the instance's socket is left"
[ "$(systemctl list-unit-files 'stepd*' --no-legend | wc -l)" -eq 0 ] ||
    fail "units are left: $(systemctl list-unit-files 'stepd*' --no-legend)"
! pgrep -x stepd >/dev/null || fail "it still runs"
grep -q "^model = $MODEL" "$CONF" || fail "the configuration was removed"
[ -n "$(find /var/lib/stepd -type f)" ] || fail "sessions were removed"

# ---- purged: no trace
mapfile -t rest < <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' \
    "${names[@]}" 2>/dev/null | sed -n 's/ config-files$//p')
apt_get purge "${rest[@]}"
left=$(find /etc /usr /lib /var /run -xdev \( -path '/var/lib/apt' \
    -o -path /var/log -o -path '/var/cache' -o -path "$builddir" \
    -o -path "$srcdir" -o -path /run/log \) -prune -o \( -name 'stepd*' \
    -o -name 'libstepclient*' -o -name 'stepctl*' \) -print 2>/dev/null |
    grep -v '^/var/tmp\|^/usr/share/doc-base' || :)
[ -z "$left" ] || fail "left behind: $left"
! getent passwd stepd >/dev/null || fail "the user is left"
! getent group stepd >/dev/null || fail "the group is left"
echo "installed, asked, upgraded, removed, purged: ${#debs[@]} packages"

if command -v lintian >/dev/null; then
    lintian --fail-on error --tag-display-limit 0 --allow-root \
        "$builddir"/deb/*.changes 2>&1 | tee "$tmp/lintian" | tail -n 20
    ! grep -q '^E: ' "$tmp/lintian" || fail "lintian has errors"
else
    echo "SKIP: lintian is not installed"
fi
