#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# clang-format must have nothing to say. Versions differ in what they do with
# one configuration, so one version decides: 14, which Debian 12 has.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
want=14

tool=
for name in "clang-format-$want" clang-format; do
    if [[ $("$name" --version 2>/dev/null) == *"version $want."* ]]; then
        tool=$name
        break
    fi
done
if [ -z "$tool" ]; then
    echo "SKIP: clang-format $want is not installed"
    exit 77
fi

# format_diff ROOT: prints what clang-format would change, fails where it would.
format_diff()
{
    local file bad=0

    while IFS= read -r file; do
        (cd "$1" && "$tool" --style=file "$file") |
            diff -u --label "$file" --label "$file, formatted" \
                "$1/$file" - || bad=1
    done < <(cd "$1" && find client daemon kernels tests -type f \
        \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) | sort)
    return "$bad"
}

status=0
format_diff "$top" || status=1

# A tool that answers nothing to everything would pass: show it a bad file.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp"/{client,daemon,kernels,tests}
cp "$top/.clang-format" "$tmp"
printf 'int  f( void ){return 1 ;}\n' >"$tmp/client/bad.c"
if format_diff "$tmp" >/dev/null; then
    echo "a badly formatted file was not noticed"
    status=1
fi
exit "$status"
