#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The test of the tests: every defect of mutants.txt, seeded one at a time into
# the kernels or the loader, must be noticed over the race build. Part of make
# check-cuemu.
# TEST_MUTANTS="3 9" takes the third to the ninth alone.

# shellcheck source=tests/cuemu/functions.sh
. "$(dirname "$0")/functions.sh"

if [ -z "${TEST_CUEMU_ALL-}" ]; then
    echo "SKIP: builds the kernels dozens of times: make check-cuemu"
    exit 77
fi

# A mutant that stays in a loop is noticed too: by the time limit.
limit=300
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/src/kernels" "$tmp/so"
flags=(-std=c++17 -g -fPIC -fvisibility=hidden -ffp-contract=off
    -fno-strict-aliasing -w -D_GNU_SOURCE "-I$tmp/src" "-I$top")
race=(-O1 -fno-tree-vectorize -fsanitize=thread
    --param tsan-instrument-func-entry-exit=0
    -include "$top/tests/cuemu/cuemu.h")

# The emulator, once.
for f in check rt_emu sched; do
    g++ "${flags[@]}" -O2 -c "$top/tests/cuemu/$f.cc" -o "$tmp/$f.cc.o" &
done
gcc -std=c17 -g -fPIC -O1 -D_GNU_SOURCE "-I$top" -c "$top/kernels/planes.c" \
    -o "$tmp/planes.c.o"
wait

# kernel NAME: its object, from the sources in $tmp/src; NAME.c: of the host's half.
kernel()
{
    case $1 in
    *.c)
        gcc -std=c17 -g -fPIC -fvisibility=hidden -O1 -w -D_GNU_SOURCE \
            "-I$tmp/src" "-I$top" -DGPU_BACKEND_NAME='"cuda-emulated"' \
            -DGPU_LOAD_PIECE=65536 -c "$tmp/src/kernels/cuda/$1" \
            -o "$tmp/$1.k.o"
        return
        ;;
    esac
    g++ "${flags[@]}" "${race[@]}" -x c++ \
        -c "$tmp/src/kernels/cuda/$1.cu" -o "$tmp/$1.k.o"
}

# stream_with SOURCE: test_stream, with its loader compiled from that file.
stream_with()
{
    # shellcheck disable=SC2016,SC1003 # variables of make
    printf '%s\n' 'include Makefile' '$(OUT):' \
        '	$(COMPILE) -w -c -o $(OUT).o $(SOURCE)' \
        '	$(tests_daemon_test_stream_LINK) $(OUT).o \' \
        '	    $(tests_daemon_test_stream_OBJECTS) \' \
        '	    $(tests_daemon_test_stream_LDADD) $(LIBS)' |
        make -s -C "$build" -f - OUT="$tmp/test_stream" SOURCE="$1" \
            "$tmp/test_stream" >"$tmp/out" 2>&1 || {
        cat "$tmp/out"
        return 1
    }
}

fresh()
{
    rm -rf "$tmp/src/kernels/cuda" "$tmp/src/daemon" "$tmp/test_stream"
    mkdir -p "$tmp/src/daemon/model"
    cp "$top/daemon/model/stream.c" "$tmp/src/daemon/model"
    cp -r "$top/kernels/cuda" "$tmp/src/kernels"
    chmod -R u+w "$tmp/src"
}

# Which kernels a program needs rebuilt when a header changes.
users()
{
    case $1 in
    daemon/*) ;;
    *.cu) basename "$1" .cu ;;
    *.c) echo "$1" ;;
    *) case $2 in gpu) echo attn ;; compact | rows) echo linear ;; reads) printf '%s\n' linear expert ;; *) echo "$2" ;; esac ;;
    esac
}

# link [plain]: the plugin; plain: with the kernels of the plain build, for what
# is no kernel's defect and repacks much.
link()
{
    local parts=("$tmp"/*.o)

    if [ -n "${1-}" ]; then
        parts=("$tmp"/*.cc.o "$tmp"/*.c.o "$tmp"/*.c.k.o
            "$cuemu/libk_plain.a")
    fi
    g++ -shared -o "$tmp/so/stepd-cuda-emulated.so" "${parts[@]}"
}

# run PROGRAM: whether it passes; one that skips has shown nothing. NAME is
# tests/kernels/test_NAME, DIR/NAME tests/DIR/NAME.
run()
{
    local r=0 program=$build/tests/kernels/test_$1

    [[ $1 != */* ]] || program=$build/tests/$1
    # One whose loader was changed.
    [ ! -x "$tmp/test_stream" ] || program=$tmp/test_stream
    KT_SCHEDULES=1 LD_LIBRARY_PATH=$cuemu/fake STEPD_PLUGIN_DIR=$tmp/so \
        KT_BACKEND=cuda-emulated timeout "$limit" "$program" >"$tmp/out" 2>&1 || r=$?
    if [ "$r" -eq 77 ]; then
        tail -n 5 "$tmp/out"
        echo "$program does not run over this build"
        exit 1
    fi
    [ "$r" -eq 0 ]
}

fresh
for f in "$top"/kernels/cuda/*.c; do
    [[ $f == */rt.c ]] || kernel "$(basename "$f")"
done
for f in "$top"/kernels/cuda/*.cu; do
    kernel "$(basename "$f" .cu)" &
    [ "$(jobs -r | wc -l)" -lt "$(nproc)" ] || wait -n
done
wait
mkdir "$tmp/right"
cp "$tmp"/*.k.o "$tmp/right"
link
status=0
# Unchanged, the build must pass what is quick, or every mutant would "fail".
for p in norm accept daemon/test_stream; do
    run "$p" || { tail -n 20 "$tmp/out"; echo "the build itself fails"; exit 1; }
done

read -r first last <<<"${TEST_MUTANTS-1 1000}"
n=0
tried=0
caught=0
while IFS= read -r line; do
    [[ $line == \#* || -z $line ]] && continue
    n=$((n + 1))
    if [ "$n" -lt "$first" ] || [ "$n" -gt "$last" ]; then
        continue
    fi
    tried=$((tried + 1))
    fresh
    # The bars that stand in the texts are written \|.
    if ! program=$("$PYTHON3" - "$tmp/src/kernels/cuda" "$line" <<'END'
import re, sys
where, line = sys.argv[1:]
name, program, old, new = [
    part.replace('\\|', '|').replace('\\n', '\n')
    for part in re.split(r'(?<!\\)\|', line.replace('||', '\\|\\|'))]
if name.startswith('daemon/'):
    where += '/../..'
text = open(where + '/' + name).read()
if old not in text:
    sys.exit(name + ' does not hold: ' + old)
open(where + '/' + name, 'w').write(text.replace(old, new, 1))
print(name, program)
END
    ); then
        status=1
        continue
    fi
    read -r file program <<<"$program"
    mapfile -t rebuilt < <(users "$file" "$program")
    for k in "${rebuilt[@]}"; do
        if ! kernel "$k"; then
            echo "does not compile: $line"
            status=1
            continue 2
        fi
    done
    if [[ $file == daemon/* ]] && ! stream_with "$tmp/src/$file"; then
        echo "does not compile: $line"
        status=1
        continue
    fi
    case $program-$file in
    daemon/test_stream-*.c) link plain ;;
    *) link ;;
    esac
    if run "$program"; then
        echo "NOT NOTICED: $line"
        status=1
    else
        echo "noticed, $n: ${line%%|*}"
        caught=$((caught + 1))
    fi
    for k in "${rebuilt[@]}"; do
        cp "$tmp/right/$k.k.o" "$tmp"
    done
done <"$top/tests/cuemu/mutants.txt"
echo "$caught defects noticed, of $tried tried and $n in the list"
[ "$caught" -gt 0 ] || status=1
exit "$status"
