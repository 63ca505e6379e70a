#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# fr_76: a socket whose mode says no is exit 77, with the group to join; one
# that cannot even be seen too.

# shellcheck source-path=SCRIPTDIR source=../e2e/functions.sh
. "$(dirname "$0")/../e2e/functions.sh"

requires /usr/bin/python3 -c 'import socket'
chmod 755 "$tmp"
mkdir "$tmp/dir"
sock=$tmp/dir/stepd.sock
group=$(id -gn)

# A listener, and somebody who may not connect: root has to become another.
exec {fd}< <(exec /usr/bin/python3 -c 'import signal, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(1)
print("listening", flush=True)
signal.pause()' "$sock")
cleanup_fn kill "$!"
read -r line <&"$fd"
[ "$line" = listening ] || fail "no listener"
other=()
if [ "$(id -u)" -eq 0 ]; then
    other=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    requires "${other[@]}" "$STEPCTL" --version
fi

denied()
{
    expect_status 77 "${other[@]}" "$STEPCTL" -s "$sock" "$@" 2>"$tmp/err"
    grep -q "$sock: permission denied: join the group $group " "$tmp/err" ||
        fail "$(cat "$tmp/err")"
}

chmod 000 "$sock"
denied ping
denied chat Hi
denied ping --wait 60
chmod 666 "$sock"
chmod 600 "$tmp/dir"
denied ping
chmod 755 "$tmp/dir"
