#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Nothing is undocumented: every configuration key, option, command, op, request
# key, event, code, limit, exported function, metric, journal field and exit
# code stands in the manual page where one would look for it. The names come
# from the sources, from the programs and from a running daemon.

# shellcheck source-path=SCRIPTDIR source=../e2e/functions.sh
. "$(dirname "$0")/../e2e/functions.sh"

n=0
missing=()

# page FOLDER/NAME: the scdoc text with its tables filled in, without markup.
page()
{
    tr -d '\\*' <"$builddir/$1.full" >"$tmp/$(basename "$1")"
}

# documented PAGE WORD...: each of them is a whole word of the page.
documented()
{
    local page=$1 word

    shift
    for word in "$@"; do
        n=$((n + 1))
        grep -Eq "(^|[^A-Za-z0-9_.-])${word//./\\.}($|[^A-Za-z0-9_-])" \
            "$tmp/$page" || missing+=("$page: $word")
    done
}

# n_names WHAT MIN NAME...: so that a list that has become empty is noticed.
n_names()
{
    [ $(($# - 2)) -ge "$2" ] || fail "only $(($# - 2)) names of $1"
}

for p in daemon/stepd.8 client/stepctl.1 client/stepd-protocol.7 \
    client/libstepclient.3 etc/stepd.conf.5; do
    page "$p"
done

# ---- stepd.conf(5): keys, of the table itself and of the commented file
mapfile -t names < <("$STEPD" --set x=1 2>&1 |
    sed -n 's/.*the keys are: //p' | tr -d ' ' | tr , '\n')
n_names "the configuration's keys" 40 "${names[@]}"
documented stepd.conf.5 "${names[@]}"

# ---- stepd(8): options, journal fields and message ids, exit codes
mapfile -t names < <("$STEPD" --help | grep -Eo -- '--[a-z]+')
n_names "stepd's options" 6 "${names[@]}"
documented stepd.8 "${names[@]}" --help
mapfile -t names < <(sed -n 's/.*put_field(.*"\([A-Z_]*\)".*/\1/p' \
    "$srcdir/daemon/base/log.c")
mapfile -t -O "${#names[@]}" names < <(
    sed -n 's/^#define LOG_ID_[A-Z]* "\(.*\)"/\1/p' "$srcdir/daemon/base/log.h")
n_names "the journal's" 9 "${names[@]}"
documented stepd.8 MESSAGE_ID "${names[@]}"
documented stepd.8 0 65 69 70 78 SIGTERM SIGINT SIGHUP

# ---- stepctl(1): every option in the section of its command
mapfile -t commands < <("$STEPCTL" --help | awk '/^  [a-z]/ {print $1}')
n_names "stepctl's commands" 14 "${commands[@]}"
mv "$tmp/stepctl.1" "$tmp/whole"
for c in "${commands[@]}"; do
    awk -v c="$c" '/^##? / {in_it = $2 == c} in_it' "$tmp/whole" \
        >"$tmp/stepctl.1"
    documented stepctl.1 "$c"
    mapfile -t names < <("$STEPCTL" "$c" --help |
        sed -n 's/^  \(--[a-z-]*\).*/\1/p')
    documented stepctl.1 "${names[@]}"
done
mv "$tmp/whole" "$tmp/stepctl.1"
documented stepctl.1 -s --help --version STEPD_SOCKET XDG_RUNTIME_DIR \
    0 64 65 66 69 70 71 75 76 77 130

# ---- stepd-protocol(7): what describe says, and wire.h as well
mapfile -t names < <("$builddir/client/mantables" names | awk '{print $2}')
n_names "the protocol's" 90 "${names[@]}"
documented stepd-protocol.7 "${names[@]}"
sed '/^#include <stdbool/q' "$srcdir/client/wire.h" |
    sed 's/, _max/ version_max/' >"$tmp/wire.h"
mapfile -t names < <("$builddir/client/mantables" names |
    awk '$1 != "limit" {print $2}')
documented wire.h "${names[@]}"
mapfile -t names < <("$builddir/client/mantables" names |
    awk '$1 == "code" {print $2}')
documented stepctl.1 "${names[@]}"

# ---- libstepclient(3): what is exported, and every error code
mapfile -t names < <(sed -n 's/^\t\(step_.*\);/\1/p' \
    "$srcdir/client/libstepclient.map")
n_names "the library's functions" 40 "${names[@]}"
documented libstepclient.3 "${names[@]}"
mapfile -t names < <(grep -Eo '^ +STEP_(E|EVENT)_[A-Z_]+' \
    "$srcdir/client/client.h" | tr -d ' ')
n_names "the library's codes" 20 "${names[@]}"
documented libstepclient.3 "${names[@]}"

# ---- stepd(8): metrics, of a daemon that runs
start_stepd
mapfile -t names < <(ctl metrics | sed -n 's/^# TYPE \([a-z_0-9]*\) .*/\1/p')
n_names "metrics" 25 "${names[@]}"
documented stepd.8 "${names[@]}"
# What their labels say, but for ops, codes and numbers.
mapfile -t names < <(ctl metrics |
    sed -En 's/.*[{](state|kind|use|outcome|part|group)="([a-z_]+)"[}].*/\2/p' |
    sort -u)
n_names "the labels'" 25 "${names[@]}"
documented stepd.8 "${names[@]}"
stop_stepd

if [ "${#missing[@]}" -gt 0 ]; then
    printf 'undocumented: %s\n' "${missing[@]}" >&2
    fail "${#missing[@]} names stand in no manual"
fi

# And it would notice.
documented stepd.8 stepd_no_such_metric
[ "${#missing[@]}" -eq 1 ] || fail "a missing name was not noticed"
echo "$n names are documented"

# ---- completion: made from the same
# shellcheck source=/dev/null
. "$builddir/client/stepctl.bash"

# completes WORD... -- EXPECTED...: the last word, as if TAB was pressed there.
completes()
{
    local want

    COMP_WORDS=()
    while [ "$1" != -- ]; do
        COMP_WORDS+=("$1")
        shift
    done
    shift
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _stepctl
    for want in "$@"; do
        printf '%s\n' "${COMPREPLY[@]}" | has -xF -e "$want" ||
            fail "${COMP_WORDS[*]}: no $want in ${COMPREPLY[*]-nothing}"
    done
}

completes stepctl '' -- "${commands[@]}"
for c in "${commands[@]}"; do
    mapfile -t names < <("$STEPCTL" "$c" --help |
        sed -n 's/^  \(--[a-z-]*\).*/\1/p')
    completes stepctl -s x "$c" - -- "${names[@]}"
done
completes stepctl chat --reasoning '' -- low medium high
[ "${#COMPREPLY[@]}" -eq 3 ] || fail "more than three efforts"
completes stepctl chat --logprobs '' --
[ "${#COMPREPLY[@]}" -eq 0 ] || fail "words where a number stands"
completes stepctl sessions '' -- list pin unpin save restore drop fork
