#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# No script of the tree leaves shellcheck anything to say.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)

command -v shellcheck >/dev/null ||
    { echo "SKIP: shellcheck is not installed"; exit 77; }

cd "$top"
find tests -name '*.sh' -print0 | sort -z |
    xargs -0 shellcheck -x -P SCRIPTDIR bootstrap .ci/run

# grep -q closes the pipe at its first match; under pipefail the writer's end
# then decides the race. `has` of functions.sh reads on.
if grep -rnE --include='*.sh' '[|] *grep +-[a-zA-Z]*q' tests; then
    echo "grep -q behind a pipe: use has"
    exit 1
fi

# And it must notice what is wrong.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# shellcheck disable=SC2016 # literal, on purpose
printf '#!/bin/sh\nrm $1\n' >"$tmp/bad.sh"
if shellcheck "$tmp/bad.sh" >/dev/null; then
    echo "a bad script was not noticed"
    exit 1
fi
