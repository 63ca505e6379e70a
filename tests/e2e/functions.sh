# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
# shellcheck shell=bash
#
# Sourced by every end-to-end test:
#
#     . "$(dirname "$0")/functions.sh"
#     start_stepd
#     ctl chat --temperature 0 'What is the capital of Kenya?' >"$tmp/out"
#     stop_stepd
#
# It runs the uninstalled daemon and CLI of the build tree, never a system
# copy, on a private socket below a temporary folder, without any system
# configuration. With STEPD_SOCKET and STEPD_PID it uses the daemon that is
# there instead (tests/systemd/test_e2e.sh: the sandboxed unit); a test that
# needs one of its own then skips. Nothing here sleeps: readiness is `stepctl ping --wait`, a
# line in a log is awaited by inotify, an end by wait.

set -euo pipefail

srcdir=$(cd "${srcdir:-$(dirname "${BASH_SOURCE[0]}")/../..}" && pwd)
builddir=$(cd "${builddir:-.}" && pwd)
STEPD=$builddir/daemon/stepd
STEPCTL=$builddir/client/stepctl
MODEL=$srcdir/tests/data/step-tiny
PYTHON3=${PYTHON3:-python3}
export srcdir builddir PYTHON3
# The socket alone is what README has a user export.
given_sock=${STEPD_PID:+${STEPD_SOCKET-}}
given_pid=${STEPD_PID-}
unset STEPD_SOCKET STEPD_PID XDG_RUNTIME_DIR NOTIFY_SOCKET LISTEN_FDS LISTEN_PID

# How long to wait for what must happen; only a hang reaches it.
WAIT_SECONDS=${WAIT_SECONDS:-120}

# Where a test does not say otherwise. MALLOC_PERTURB_ writes to every page of a
# KV cache: the default one is gigabytes, at every start.
KV_MEMORY=256M

# ---- outcome -------------------------------------------------------------

skip()
{
    echo "SKIP: $(basename "$0"): $*" >&2
    exit 77
}

# At the end of a subshell or a pipe use `|| exit`, for exit leaves only that.
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

# requires COMMAND...: skips where the command fails.
requires()
{
    if ! "$@" >/dev/null 2>&1; then
        skip "this needs to work: $*"
    fi
}

# expect_status N COMMAND...: the command must exit with N.
expect_status()
{
    local want=$1 got=0

    shift
    "$@" || got=$?
    if [ "$got" -ne "$want" ]; then
        fail "exit status $got instead of $want: $*"
    fi
}

# ---- cleaning up -----------------------------------------------------------

cleanup_list=()

# cleanup_fn COMMAND [ARG...]: runs at exit, the last one given first. The
# arguments are kept apart, spaces included.
cleanup_fn()
{
    cleanup_list+=("$(printf '%q ' "$@")")
}

run_cleanups()
{
    local status=$? i

    trap - EXIT
    set +e
    for ((i = ${#cleanup_list[@]} - 1; i >= 0; i--)); do
        eval "${cleanup_list[i]}"
    done
    exit "$status"
}
trap run_cleanups EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Short, for a socket's path holds 107 bytes.
tmp=${TMPDIR:-/tmp}
[ "${#tmp}" -le 60 ] || tmp=/tmp
tmp=$(mktemp -d "$tmp/stepd-test.XXXXXX")
cleanup_fn rm -rf "$tmp"

# ---- the daemon --------------------------------------------------------------

declare -A stepd_pids=() stepd_socks=()

# The last one started, which is the one that ctl talks to.
stepd_pid=
sock=

# launch_stepd [-n NAME] [ARG...]: starts a daemon (default name: stepd) and
# returns at once. Log: $tmp/NAME.log; socket: $tmp/NAME.sock; more
# configuration: $tmp/NAME.conf, where the test wrote one. A --model or
# --socket among the arguments wins over the ones given here.
launch_stepd()
{
    local name=stepd

    if [ -n "$given_sock" ]; then
        [ $# -eq 0 ] || skip "this needs a daemon of its own: $*"
        stepd_pid=$given_pid
        sock=$given_sock
        journalctl -q -u stepd.service -o cat -n all -f >"$tmp/$name.log" &
        cleanup_fn kill "$!"
        stepd_pids[$name]=$stepd_pid
        stepd_socks[$name]=$sock
        return
    fi
    if [ "${1-}" = -n ]; then
        name=$2
        shift 2
    fi
    if [ -n "${stepd_pids[$name]-}" ]; then
        fail "a daemon named $name runs already"
    fi
    [ -e "$tmp/$name.conf" ] || : >"$tmp/$name.conf"
    "$STEPD" --config "$tmp/$name.conf" --model "$MODEL" \
        --socket "$tmp/$name.sock" --set kv_memory="$KV_MEMORY" "$@" \
        2>"$tmp/$name.log" &
    stepd_pid=$!
    sock=$tmp/$name.sock
    stepd_pids[$name]=$stepd_pid
    stepd_socks[$name]=$sock
    cleanup_fn kill_stepd "$name"
}

# start_stepd [-n NAME] [ARG...]: launch_stepd, and back when it is ready.
# shellcheck disable=SC2120 # arguments are optional
start_stepd()
{
    local name=stepd ping ended status=0

    [ "${1-}" != -n ] || name=$2
    launch_stepd "$@"
    if [ -n "$given_sock" ]; then
        "$STEPCTL" -s "$sock" ping --wait "$WAIT_SECONDS" >/dev/null
        return
    fi
    "$STEPCTL" -s "$sock" ping --wait "$WAIT_SECONDS" \
        >"$tmp/$name.ping" 2>&1 &
    ping=$!
    wait -n -p ended "$ping" "$stepd_pid" || status=$?
    if [ "$ended" = "$stepd_pid" ]; then
        # Not TERM: until it is another program, a child would run our traps.
        kill -KILL "$ping" 2>/dev/null || :
        wait "$ping" 2>/dev/null || :
        unset "stepd_pids[$name]"
        show_log "$name"
        fail "stepd ended with status $status before it was ready"
    fi
    if [ "$status" -ne 0 ]; then
        cat "$tmp/$name.ping" >&2
        show_log "$name"
        fail "stepctl ping --wait ended with status $status"
    fi
}

# stop_stepd [NAME]: SIGTERM, which must end in exit 0, without the socket
# file, and without a word from a sanitizer (a leak makes the status non-zero).
# shellcheck disable=SC2120 # the argument is optional
stop_stepd()
{
    local name=${1:-stepd}
    local pid=${stepd_pids[$name]-}

    [ -n "$pid" ] || fail "no daemon named $name runs"
    if [ -n "$given_sock" ]; then
        unset "stepd_pids[$name]"
        [ -d "/proc/$pid" ] || fail "the daemon has ended"
        return
    fi
    kill -TERM "$pid" 2>/dev/null || :
    reap_stepd "$name" 0
    if [ -e "${stepd_socks[$name]}" ]; then
        fail "stepd left its socket behind: ${stepd_socks[$name]}"
    fi
}

# reap_stepd NAME STATUS: waits for a daemon that ends by itself or was told
# to, and checks the status it ends with and what sanitizers say.
reap_stepd()
{
    local name=$1 want=$2 got=0

    wait "${stepd_pids[$name]}" || got=$?
    unset "stepd_pids[$name]"
    if grep -Eq 'runtime error: |(Address|Leak|Thread)Sanitizer' \
        "$tmp/$name.log"; then
        show_log "$name"
        fail "a sanitizer found something in stepd"
    fi
    if [ "$got" -ne "$want" ]; then
        show_log "$name"
        fail "stepd ended with status $got instead of $want"
    fi
}

# The cleanup of launch_stepd: a daemon that a failed test left running.
kill_stepd()
{
    local pid=${stepd_pids[$1]-}

    [ -n "$pid" ] || return 0
    kill -KILL "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    show_log "$1"
}

show_log()
{
    echo "---- log of $1" >&2
    tail -n 100 "$tmp/$1.log" >&2
    echo "----" >&2
}

# ---- talking to it -------------------------------------------------------------

# ctl ARG...: stepctl on the daemon started last.
ctl()
{
    "$STEPCTL" -s "$sock" "$@"
}

# py [ARG...]: the Python program on stdin, with client.py at hand.
py()
{
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$srcdir/tests/e2e \
        "$PYTHON3" - "$@"
}

# requires_msgpack: skips where python3-msgpack is missing.
requires_msgpack()
{
    requires "$PYTHON3" -c 'import msgpack'
}

# wait_for_line FILE REGEX: until a line of the file, now or later, matches.
wait_for_line()
{
    local fd pid status=0

    exec {fd}< <(exec tail -n +1 -F "$1" 2>/dev/null)
    pid=$!
    timeout "$WAIT_SECONDS" grep -E -q -m 1 -- "$2" <&"$fd" || status=$?
    kill "$pid" 2>/dev/null || :
    exec {fd}<&-
    if [ "$status" -ne 0 ]; then
        cat "$1" >&2 || :
        fail "no line in $1 matched: $2"
    fi
}

# n_fds [NAME]: how many files a daemon has open.
n_fds()
{
    local -a fds=("/proc/${stepd_pids[${1:-stepd}]}/fd"/*)

    echo "${#fds[@]}"
}
