#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The tarball is the git tree: each tracked file is distributed, and nothing
# else is but what autoreconf generates.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
cd "${builddir:-.}"

if [ ! -e "$top/.git" ]; then
    echo "SKIP: the source tree is no git checkout"
    exit 77
fi
if ! tracked=$(git -C "$top" ls-files 2>&1); then
    echo "SKIP: git ls-files: $tracked"
    exit 77
fi

distributed=$(MAKEFLAGS='' make -s print-dist | sort -u |
    grep -Ev '^(build-aux/|aclocal\.m4$|config\.h\.in$|configure$|Makefile\.in$)')
if ! diff <(sort <<<"$tracked") <(echo "$distributed"); then
    echo "above: < tracked by git only, > in the tarball only"
    exit 1
fi
