#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# What can be said of the kernels without a GPU, where nvcc is: warnings, spills
# and local memory are errors of the build already (kernels/local.mk); here the
# registers of registers.txt, no flushed subnormals, no double precision but in
# the sampler, the tensor instructions that there must be, and the operands of
# every asm wrapper.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
build=$(cd "${builddir:-.}" && pwd)

if [ ! -e "$build/kernels/cuda/stepd-cuda.so" ]; then
    echo "SKIP: the CUDA backend is not part of this build"
    exit 77
fi
nvcc=$(sed -n 's/^NVCC = //p' "$build/Makefile")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
status=0

# shellcheck disable=SC2054 # commas of -Xcompiler
flags=(-std=c++17 -O3 -fmad=false "-I$top" -Xptxas -v
    -Xcompiler -fno-threadsafe-statics,-fno-exceptions,-fno-rtti)

# compile NAME: PTX of one target, and what ptxas says of all.
compile()
{
    "$nvcc" "${flags[@]}" -arch=sm_90a --keep --keep-dir "$tmp" -cubin \
        "$top/kernels/cuda/$1.cu" -o "$tmp/$1.cubin" 2>"$tmp/$1.said"
    "$nvcc" "${flags[@]}" -gencode arch=compute_80,code=sm_80 \
        -gencode arch=compute_100f,code=sm_100f \
        -gencode arch=compute_120f,code=sm_120f -fatbin \
        "$top/kernels/cuda/$1.cu" -o "$tmp/$1.fatbin" 2>>"$tmp/$1.said"
}
for f in "$top"/kernels/cuda/*.cu; do
    compile "$(basename "$f" .cu)" &
    [ "$(jobs -r | wc -l)" -lt "$(nproc)" ] || wait -n
done
wait

# Registers and blocks an SM: the table has a line for each kernel, as ptxas
# names it. A new table is left beside the log.
include=$(dirname "$nvcc")/../include
table=$top/tests/cuemu/registers.txt
g++ -std=c++17 -O1 -w -isystem "$include" "$top/tests/cuemu/occupancy.cc" \
    -o "$tmp/occupancy"
awk '
    NR == FNR { if ($1 !~ /^#/) { threads[$1] = $2; dynamic[$1] = $3 } ; next }
    /Compiling entry function/ {
        split($0, q, "\047")
        name = q[2]
        target = substr(q[4], 4)
    }
    /Used [0-9]+ registers/ {
        match($0, /Used [0-9]+/)
        regs = substr($0, RSTART + 5, RLENGTH - 5)
        smem = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
        if (name in threads) {
            print name, target, regs, smem, threads[name], dynamic[name]
        } else {
            print name, target, regs, smem, 256, 0
        }
    }' "$table" "$tmp"/*.said | "$tmp/occupancy" >"$tmp/used"

# judge USED: against the table.
judge()
{
    awk '
        NR == FNR {
            if ($1 ~ /^#/) next
            for (i = 0; i < 4; i++) {
                split("80 90a 100f 120f", t)
                regs[$1 " " t[i + 1]] = $(4 + 2 * i)
                blocks[$1 " " t[i + 1]] = $(5 + 2 * i)
            }
            next
        }
        { k = $1 " " $2; seen[k] = 1 }
        !(k in regs) { print k " is not in registers.txt"; bad = 1; next }
        $3 > regs[k] { print k ": " $3 " registers, allowed " regs[k]; bad = 1 }
        $4 < blocks[k] { print k ": " $4 " blocks an SM, not " blocks[k]; bad = 1 }
        END {
            for (k in regs) if (!(k in seen)) { print k " is no kernel"; bad = 1 }
            exit bad
        }' "$table" "$1"
}
awk '
    NR == FNR { if ($1 !~ /^#/) { head[$1] = $2 " " $3 } else { print; fflush() }; next }
    { at[$1, $2] = int(($3 + 7) / 8) * 8 " " $4; name[$1] = 1 }
    END {
        for (k in name) {
            print k, (k in head ? head[k] : "256 0"), at[k, "80"], at[k, "90a"],
                at[k, "100f"], at[k, "120f"] | "LC_ALL=C sort"
        }
    }' "$table" "$tmp/used" >"$build/tests/cuemu/registers.new"
if ! judge "$tmp/used"; then
    echo "what is in use now: $build/tests/cuemu/registers.new"
    status=1
fi
for change in 's/^\(_Z14expert_up_tile[^ ]* 80\) [0-9]*/\1 999/' \
    's/^\(_Z4norm[^ ]* 120f [0-9]*\) .*/\1 0/'; do
    sed "$change" "$tmp/used" >"$tmp/changed"
    if judge "$tmp/changed" >/dev/null; then
        echo "registers.txt: $change is not noticed"
        status=1
    fi
done

# declared NAME HEADER CHANGE...: NAME.h, a library as we declare it, is as NVIDIA
# does in HEADER; and each CHANGE of it is noticed.
declared()
{
    local name=$1 header=$2 change
    local same=(g++ -std=c++17 -fsyntax-only -isystem "$include"
        "$top/tests/cuemu/$1_check.cc")

    shift 2
    if [ ! -e "$include/$header" ]; then
        echo "no $header beside $nvcc: $name.h was compared with nothing"
        return
    fi
    "${same[@]}" "-I$top" || status=1
    mkdir -p "$tmp/kernels/cuda"
    for change; do
        sed "$change" "$top/kernels/cuda/$name.h" >"$tmp/kernels/cuda/$name.h"
        if "${same[@]}" "-I$tmp" "-I$top" 2>/dev/null; then
            echo "$name.h: $change is not noticed"
            status=1
        fi
    done
}
declared lt cublasLt.h 's/int compute, int scale/int compute/' 's/= 68/= 64/' \
    's/float waves/double waves/'
declared nccl nccl.h 's/struct nccl_id id, int rank/int rank/' 's/32 = 7/32 = 8/' \
    's/ID_BYTES 128/ID_BYTES 64/'

# count WORD NAME: lines of the PTX with it.
count()
{
    grep -cE "$1" "$tmp/$2.ptx" || :
}
for f in "$tmp"/*.ptx; do
    name=$(basename "$f" .ptx)
    # expf of the toolkit holds one, on an argument that cannot be subnormal
    if grep '\.ftz' "$f" | grep -v 'ex2\.approx\.ftz'; then
        echo "$name: subnormals flushed"
        status=1
    fi
    [ "$(count '\.local' "$name")" -eq 0 ] ||
        { echo "$name: local memory"; status=1; }
    [ "$name" = sample ] || [ "$(count '\.f64' "$name")" -eq 0 ] ||
        { echo "$name: double precision"; status=1; }
done
# attn: a page's scores 64 mma, its values 64, in each of two kernels; a warp of a
# tile kernel 2 x 4 x 4 x 2 a group of columns, four formats, one kernel.
while read -r name word want; do
    got=$(count "$word" "$name")
    [ "$got" -eq "$want" ] ||
        { echo "$name: $got of $word, not $want"; status=1; }
done <<'END'
attn mma\.sync 256
attn ldmatrix 64
END
for name in linear expert; do
    [ "$(count 'mma\.sync' "$name")" -ge 200 ] ||
        { echo "$name: too few mma.sync"; status=1; }
    [ "$(count 'cp\.async\.cg' "$name")" -ge 16 ] ||
        { echo "$name: too few cp.async"; status=1; }
    [ "$(count 'v4\.u32|v4\.b32' "$name")" -ge 32 ] ||
        { echo "$name: too few 16-byte accesses"; status=1; }
done

"$nvcc" -std=c++17 -O3 -fmad=false "-I$top" -arch=sm_80 -ptx \
    "$top/tests/cuemu/probe.cu" -o "$tmp/probe.ptx"
"${PYTHON3:-python3}" "$top/tests/cuemu/check_probe.py" "$tmp/probe.ptx" ||
    status=1
# The probe notices an operand in the wrong place.
sed -E 's/(mma\.sync[^{]*\{%f[0-9]+),(%f[0-9]+)/\1_/; s/_/,/' "$tmp/probe.ptx" |
    sed -E '/mma\.sync/ s/\{(%f[0-9]+),[ ]*(%f[0-9]+)/{\2,\1/' >"$tmp/bad.ptx"
if "${PYTHON3:-python3}" "$top/tests/cuemu/check_probe.py" "$tmp/bad.ptx" \
    >/dev/null; then
    echo "swapped operands were not noticed"
    status=1
fi
exit "$status"
