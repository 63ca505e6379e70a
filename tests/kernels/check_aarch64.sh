#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# make check-aarch64: kernels/ and the tests of its CPU path, cross-built for
# aarch64 and run by qemu-user: the portable path, which GCC lowers to NEON, on a
# CPU without BF16 instructions, and that with them beside it on one that has.
# cross/cmocka.h stands in for cmocka, which the target does not have. Needs
# gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user; skips without.

set -euo pipefail

cc=${AARCH64_CC:-aarch64-linux-gnu-gcc}
qemu=${AARCH64_QEMU:-$(command -v qemu-aarch64 || command -v qemu-aarch64-static || :)}
if ! command -v "$cc" >/dev/null; then
    echo "SKIP: no $cc (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross)"
    exit 77
fi
if [ -z "$qemu" ]; then
    echo "SKIP: no qemu-aarch64 (Debian: qemu-user)"
    exit 77
fi

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What configure would write: none of x86's paths.
mkdir "$work/tests"
echo '#define HAVE_NEONBF16 1' >"$work/config.h"
printf '#define TEST_SRCDIR "%s"\n#define TEST_BUILDDIR "%s"\n' \
    "$top" "$top" >"$work/tests/paths.h"

flags=(-std=c17 -O2 -D_GNU_SOURCE -static -ffp-contract=off
    -fno-strict-aliasing -pthread -Wall -Wextra -Wshadow -Wvla -Werror
    -I"$work" -I"$top/tests/kernels/cross" -I"$top"
    -DKERN_PLUGIN_DIR='"/nowhere"')
# Once, as kernels/local.mk lists them, and the path's own.
once=(kernels planes cpu/accept cpu/cpu cpu/gather cpu/isa cpu/pool cpu/weight)
path=(attn embed expert_down expert_up finite linear norm qkv router sample
    swiglu table tile xrows)
tests=(quant ref rows norm linear compact expert attn router qkv sample accept
    pool)

objects=()
# compile SOURCE NAME FLAGS...: an object of the library.
compile()
{
    "$cc" "${flags[@]}" "${@:3}" -c -o "$work/$2.o" "$top/$1"
    objects+=("$work/$2.o")
}

for f in "${once[@]}"; do
    compile "kernels/$f.c" "once-${f//\//-}"
done
compile kernels/plugin.c plugin
for f in "${path[@]}"; do
    compile "kernels/cpu/$f.c" "path-$f" -DKERN_ISA=portable
    compile "kernels/cpu/$f.c" "bf16-$f" -DKERN_ISA=neonbf16 \
        -march=armv8.2-a+bf16
done
for f in "$top"/kernels/ref/*.c; do
    compile "kernels/ref/${f##*/}" "ref-$(basename "$f" .c)"
done
compile tests/kernels/kt.c kt

# The path that each of them takes by itself.
cat >"$work/best.c" <<'EOF'
#include <stdio.h>
#include "kernels/kernels.h"

int main(void)
{
    struct kern_open_args a = {.n_threads = 1};
    struct kern *k;
    char text[64];

    if (kern_open(kern_find("cpu"), &a, &k) < 0) {
        return 1;
    }
    puts(kern_describe(k, text, sizeof(text)));
    kern_close(k);
    return 0;
}
EOF
"$cc" "${flags[@]}" -o "$work/best" "$work/best.c" "${objects[@]}" -lm -ldl \
    2>"$work/log" || { cat "$work/log"; exit 1; }
for want in 'cortex-a72 portable' 'max neonbf16'; do
    got=$("$qemu" -cpu "${want% *}" "$work/best")
    if [ "$got" != "cpu ${want#* }, 1 thread" ]; then
        echo "${want% *}: $got, not ${want#* }"
        exit 1
    fi
done

for t in "${tests[@]}"; do
    "$cc" "${flags[@]}" -o "$work/test_$t" "$top/tests/kernels/test_$t.c" \
        "${objects[@]}" -lm -ldl 2>"$work/log" || {
        cat "$work/log"
        exit 1
    }
    for cpu in cortex-a72 max; do
        if ! timeout "${AARCH64_SECONDS:-900}" "$qemu" -cpu "$cpu" \
            "$work/test_$t" >"$work/out" 2>&1; then
            cat "$work/out"
            echo "test_$t failed on aarch64, $cpu"
            exit 1
        fi
        echo "aarch64, $cpu: test_$t: $(grep -c '^ok ' "$work/out") passed"
    done
done
