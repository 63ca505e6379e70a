#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# No file past 1,000 lines and no function past 120 (aim at 500 and 50). A
# flat switch, a table or a single CUDA kernel body may be longer where the
# line above it says so: "long: " and the reason, in a comment. clang-format
# puts a function's braces in the first column, which is all that is parsed.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)

# too_long ROOT: prints what is, fails where anything is.
too_long()
{
    local found

    found=$(cd "$1" && find client daemon kernels tests -type f \
        \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
        sort -z | xargs -0 -r awk '
            function file_end() {
                if (last > 1000)
                    print name ": " last " lines (at most 1000)"
            }
            FNR == 1 { file_end(); name = FILENAME; start = 0; long = 0 }
            { last = FNR }
            /^(\/\*| \*) *long: / { long = 1 }
            /^{/ { start = FNR }
            /^}/ {
                if (start && FNR - start > 120 && !long)
                    print FILENAME ":" start ": a function of " \
                        FNR - start + 1 " lines (at most 120)"
                start = 0; long = 0
            }
            END { file_end() }')
    [ -z "$found" ] || { echo "$found"; return 1; }
}

status=0
too_long "$top" || status=1

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp"/{client,daemon,kernels,tests}
for n in 1001 130; do
    { echo 'void f(void)'; echo '{'; yes '    g();' | head -n "$n"; echo '}'; } \
        >"$tmp/client/a.c" || :
    if too_long "$tmp" >/dev/null; then
        echo "$n lines were not noticed"
        status=1
    fi
done
sed -i '1i /* long: one flat table */' "$tmp/client/a.c"
too_long "$tmp" || status=1
exit "$status"
