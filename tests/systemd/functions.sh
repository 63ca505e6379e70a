# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
# shellcheck shell=bash
#
# Sourced first by every test of the units. The script is run again inside of
# systemd-box, a real systemd over a throw-away view of the file system, with
# what `make install` put into tests/systemd/root laid over it:
#
#     . "$(dirname "$0")/functions.sh"
#     conf drain_timeout=5s          # stepd.conf, model included
#     systemctl start stepd.socket
#     ctl chat 'What is the capital of Kenya?'
#
# What is awaited is polled with a limit (until_true), never slept for.

set -euo pipefail

srcdir=$(cd "${srcdir:-$(dirname "${BASH_SOURCE[0]}")/../..}" && pwd)
builddir=$(cd "${builddir:-.}" && pwd)
PYTHON3=${PYTHON3:-python3}
export srcdir builddir PYTHON3

skip()
{
    echo "SKIP: $(basename "$0"): $*"
    exit 77
}

fail()
{
    echo "FAIL: $(basename "$0"): $*" >&2
    exit 1
}

# has ARG...: grep -q of what comes in by a pipe, read to its end: a writer that
# meets a closed pipe would fail the whole pipe.
has()
{
    local found

    found=$(grep -c "$@") && [ "$found" -gt 0 ]
}

if [ -z "${STEPD_BOX-}" ]; then
    [ "$(id -u)" = 0 ] || skip "a box of systemd needs root"
    [ -e "$builddir/tests/systemd/root.stamp" ] ||
        skip "make check-systemd installs what is tested"
    status=0
    (cd "$builddir" && exec "$srcdir/tests/systemd/systemd-box" -t 300 \
        env STEPD_BOX=1 bash "$(cd "$(dirname "$0")" && pwd)/$(basename "$0")") ||
        status=$?
    [ "$status" -ne 77 ] || echo "SKIP: $(basename "$0"): see above"
    exit "$status"
fi

# ---- inside -----------------------------------------------------------------

SOCK=/run/stepd/stepd.sock
MODEL=/srv/step-tiny
WAIT_SECONDS=${WAIT_SECONDS:-60}
tmp=$(mktemp -d)

install_stepd()
{
    tar -C "$builddir/tests/systemd/root" -c . |
        tar -C / -x --keep-directory-symlink --no-overwrite-dir
    ldconfig
    cp -r "$srcdir/tests/data/step-tiny" "$MODEL"
    systemd-sysusers
    systemd-tmpfiles --create stepd.conf
    systemctl daemon-reload
    CONF=$(sed -n 's/^ExecStart=.* --config //p' \
        /lib/systemd/system/stepd.service)
    BIN=$(sed -n 's|^ExecReload=\(.*\)/stepctl .*|\1|p' \
        /lib/systemd/system/stepd.service)
    # shellcheck disable=SC2119
    conf
}

# conf [KEY=VALUE]...: the whole configuration; the model is the tiny one
# unless another is named.
# shellcheck disable=SC2120 # arguments are optional
conf()
{
    {
        case " $* " in *" model="*) ;; *) echo "model = $MODEL" ;; esac
        [ $# -eq 0 ] || printf '%s\n' "$@"
    } >"$CONF"
}

# dropin UNIT LINE...: a drop-in of its own, [Service] and these lines.
dropin()
{
    local dir=/etc/systemd/system/$1.d

    mkdir -p "$dir"
    shift
    printf '%s\n' '[Service]' "$@" >>"$dir/test.conf"
    systemctl daemon-reload
}

ctl()
{
    "$BIN/stepctl" -s "$SOCK" "$@"
}

ready()
{
    ctl ping --wait "$WAIT_SECONDS" >/dev/null || {
        show_logs
        fail "not ready"
    }
}

# prop NAME [UNIT]
prop()
{
    systemctl show -P "$1" "${2:-stepd.service}"
}

# until_true COMMAND...: tries again until it succeeds.
until_true()
{
    local end=$((SECONDS + WAIT_SECONDS))

    until "$@"; do
        if [ "$SECONDS" -ge "$end" ]; then
            show_logs
            fail "this did not come true: $*"
        fi
        sleep 0.05
    done
}

is_prop()
{
    [ "$(prop "$1" "${3:-stepd.service}")" = "$2" ]
}

expect_prop()
{
    is_prop "$@" || {
        show_logs
        fail "${3:-stepd.service}: $1 is $(prop "$1" "${3:-stepd.service}"), not $2"
    }
}

# expect_status N COMMAND...
expect_status()
{
    local want=$1 got=0

    shift
    "$@" || got=$?
    [ "$got" -eq "$want" ] || {
        show_logs
        fail "exit status $got instead of $want: $*"
    }
}

# logged REGEX [UNIT]: a line of the unit's journal matches.
logged()
{
    journalctl -q --no-pager -o cat -u "${2:-stepd.service}" | has -E -- "$1"
}

# n_logged FIELD=VALUE...: entries of the journal with these fields.
n_logged()
{
    journalctl -q --no-pager -o cat "$@" | wc -l
}

# has_logged FIELD=VALUE...: there is one at least. For until_true, which is given
# a command: what stands in $(...) would be looked at once.
has_logged()
{
    [ "$(n_logged "$@")" -gt 0 ]
}

main_pid()
{
    prop MainPID
}

show_logs()
{
    echo "---- journal" >&2
    journalctl -q --no-pager -o short-monotonic -u 'stepd*' | tail -n 60 >&2
    echo "----" >&2
}

# A user of the box, in the groups given.
user()
{
    useradd -M -N -s /bin/bash ${2:+-G "$2"} "$1"
}

# as USER COMMAND...
as()
{
    local name=$1

    shift
    setpriv --reuid "$name" --regid "$(id -g "$name")" --init-groups "$@"
}

# What every test ends with: the socket unit's socket is all that is in /run.
expect_clean_run()
{
    local left

    left=$(find /run/stepd -mindepth 1 ! -path "$SOCK" ! -type d)
    [ -z "$left" ] || fail "left behind in /run/stepd: $left"
    if systemctl -q is-active stepd.socket; then
        [ -S "$SOCK" ] || fail "stepd.socket is active and its socket is gone"
    elif [ -e "$SOCK" ]; then
        fail "$SOCK is there and stepd.socket is not active"
    fi
}

trap 'rm -rf "$tmp"' EXIT
trap 'show_logs; echo "FAIL: $(basename "$0"): line $LINENO" >&2' ERR
# test_deb.sh installs packages instead.
[ -n "${STEPD_NO_INSTALL-}" ] || install_stepd
