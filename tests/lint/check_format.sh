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

files()
{
    find client daemon kernels tests -type f \
        \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z
}

# format_diff ROOT: prints what clang-format would change, fails where it would.
# One process looks at all files; one a file only to show what is wrong.
format_diff()
{
    local file

    (
        cd "$1"
        if ! files | xargs -0 "$tool" --style=file --dry-run -Werror 2>/dev/null
        then
            while IFS= read -r -d '' file; do
                "$tool" --style=file "$file" | diff -u --label "$file" \
                    --label "$file, formatted" "$file" - || :
            done < <(files)
            exit 1
        fi
    )
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
