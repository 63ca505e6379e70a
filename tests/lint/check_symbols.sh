#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# libstepclient exports exactly what its version script names, each of these
# is declared in client.h, and all begin with step_.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
lib=${builddir:-.}/client/.libs/libstepclient.so
map=$top/client/libstepclient.map

command -v nm >/dev/null || { echo "SKIP: nm is not installed"; exit 77; }
if [ ! -e "$lib" ]; then
    echo "SKIP: libstepclient was built without a shared library"
    exit 77
fi

# The names in the global: sections of the map.
mapped=$(tr '\n' ' ' <"$map" | sed -e 's|/\*[^*]*\*/||g' \
    -e 's/local:[^}]*//g' | grep -o 'global:[^}]*' | sed 's/global://' |
    tr ';' '\n' | tr -d ' \t' | sed '/^$/d' | sort)
exported=$(nm -D --defined-only "$lib" | awk '$2 != "A" { print $3 }' |
    sed 's/@.*//' | sort)

status=0
if [ -z "$mapped" ]; then
    echo "$map names nothing"
    status=1
fi
if ! diff <(echo "$mapped") <(echo "$exported"); then
    echo "above: < named in libstepclient.map, > exported by the library"
    status=1
fi
while IFS= read -r name; do
    if [[ $name != step_* ]]; then
        echo "$name is exported without the prefix step_"
        status=1
    fi
    if ! grep -Eq "\b$name\(" "$top/client/client.h"; then
        echo "$name is exported and not declared in client.h"
        status=1
    fi
done <<<"$exported"
exit "$status"
