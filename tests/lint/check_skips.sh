#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# A test that skips says why. In scripts, exit 77 stands on the line of the
# message or right below it; in Python likewise; in C only test_skip() skips,
# for it takes the reason, and main returns test_main(), which reports a
# program of skips as a skip.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)

# silent_skips FILE...: prints each skip that has no message.
silent_skips()
{
    awk '
        FNR == 1 { before = "" }
        /^[ \t]*#/ { next }
        /exit\(?[ ]*77|return 77/ {
            if ((before $0) !~ /echo|printf|print\(|print .*>&2|write\(/)
                print FILENAME ":" FNR ": skips without a reason"
        }
        { before = $0 }' "$@"
}

# silent_c_skips FILE...: cmocka used past test.h.
silent_c_skips()
{
    grep -EHn '(^|[^_a-z])skip\(\)|return cmocka_run_group_tests' "$@" |
        sed 's/$/: use test_skip() and test_main() of tests\/test.h/' || :
}

# check_tree ROOT: fails where anything is printed.
check_tree()
{
    local found

    found=$(cd "$1" && {
        find tests -name '*.sh' ! -path tests/lint/check_skips.sh -print0 |
            sort -z | while IFS= read -r -d '' f; do silent_skips "$f"; done
        find tests -name '*.py' ! -path 'tests/data/*' -print0 |
            sort -z | while IFS= read -r -d '' f; do silent_skips "$f"; done
        find tests -name '*.c' -print0 | sort -z |
            while IFS= read -r -d '' f; do silent_c_skips "$f"; done
    })
    [ -z "$found" ] || { echo "$found"; return 1; }
}

status=0
check_tree "$top" || status=1

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/tests"

# planted NAME TEXT: a tree with this one file must be refused.
planted()
{
    printf '%b' "$2" >"$tmp/tests/$1"
    if check_tree "$tmp" >/dev/null; then
        echo "not noticed in $1: $2"
        status=1
    fi
    rm "$tmp/tests/$1"
}
planted a.sh 'command -v x || exit 77\n'
planted a.sh 'echo no x\nx=1\nexit 77\n'
planted a.py 'import sys\nsys.exit(77)\n'
planted a.c 'static void f(void **s)\n{\n    skip();\n}\n'
planted a.c '    return cmocka_run_group_tests(t, NULL, NULL);\n'

printf 'echo "SKIP: no x"\nexit 77\n' >"$tmp/tests/a.sh"
printf 'test_skip(NULL, "no x");\n' >"$tmp/tests/a.c"
if ! check_tree "$tmp"; then
    echo "a skip with a reason was refused"
    status=1
fi
exit "$status"
