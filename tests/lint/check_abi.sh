#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The binary interface of libstepclient is that of libstepclient.abi: functions,
# their types, the enums they use. Private types are left out, and so is all
# that compilers, flags and machines differ in.
#
# A new function: run this in the build folder with --update and commit the
# file. A changed or removed one breaks programs: think of another way, or raise
# the soname (client/local.mk) and do the same.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
lib=${builddir:-.}/client/.libs/libstepclient.so
include=${builddir:-.}/client/include/stepd
dump=$top/tests/lint/libstepclient.abi
want=2.2

skip()
{
    echo "SKIP: $*"
    exit 77
}

command -v abidiff >/dev/null || skip "abidiff is not installed (abigail-tools)"
# Releases differ in what they call a change; one decides.
[[ $(abidiff --version) == *"abidiff: $want."* ]] ||
    skip "the dump is judged by abidiff $want, not $(abidiff --version)"
[ -e "$lib" ] || skip "libstepclient was built without a shared library"
[[ $(readelf -S "$lib") == *.debug_info* ]] ||
    skip "$lib has no debug information (-g)"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

if [ "${1-}" = --update ]; then
    abidw --exported-interfaces-only --headers-dir "$include" \
        --drop-private-types --no-corpus-path \
        --no-comp-dir-path --no-show-locs --type-id-style hash "$lib" |
        sed -e '/<elf-needed>/,/<\/elf-needed>/d' \
            -e "s| path='[^']*/| path='|" >"$tmp/new"
    cat "$tmp/new" >"$dump"
    exit 0
fi

compare()
{
    abidiff --exported-interfaces-only --headers-dir2 "$include" \
        --drop-private-types "$@" "$lib"
}

status=0
compare --no-added-syms "$dump" || status=1
while IFS= read -r name; do
    if ! grep -q "<function-decl name='$name'" "$dump"; then
        echo "$name is not in $dump: see the top of $0"
        status=1
    fi
done < <(nm -D --defined-only "$lib" | awk '$2 == "T" { print $3 }' |
    sed 's/@.*//')

# And it must notice a lost function and a changed type.
sed "s/'step_client_wait\b/'step_client_gone/g" "$dump" >"$tmp/removed.abi"
sed "s/name='int' size-in-bits='32'/name='int' size-in-bits='16'/" "$dump" \
    >"$tmp/changed.abi"
for planted in removed changed; do
    if cmp -s "$dump" "$tmp/$planted.abi" ||
        compare --no-added-syms "$tmp/$planted.abi" >/dev/null; then
        echo "not noticed: $planted"
        status=1
    fi
done
exit "$status"
