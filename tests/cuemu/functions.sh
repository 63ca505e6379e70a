# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
# shellcheck shell=bash
#
# What the scripts of tests/cuemu share. TEST_CUEMU_ALL=1 (make check-cuemu): all
# builds and all schedules, else the plain one and one schedule.

set -euo pipefail

# shellcheck disable=SC2034 # read by the scripts that source this
top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
build=$(cd "${builddir:-.}" && pwd)
cuemu=$build/tests/cuemu
PYTHON3=${PYTHON3:-python3}

if [ ! -e "$cuemu/plain/stepd-cuda-emulated.so" ]; then
    echo "SKIP: no CUDA emulator in this build (--enable-cuemu, g++, x86-64, no sanitizer)"
    exit 77
fi

# shellcheck disable=SC2034 # read by the scripts that source this
builds=plain
export KT_SCHEDULES=1
if [ -n "${TEST_CUEMU_ALL-}" ]; then
    # shellcheck disable=SC2034
    builds='plain asan race'
    KT_SCHEDULES=6
fi

# over BUILD PROGRAM: the program with its backend replaced by that build's, and
# NVIDIA's libraries by stand-ins.
over()
{
    local preload=

    # ASan wants to be first in the process.
    [ "$1" != asan ] || preload=$(g++ -print-file-name=libasan.so)
    LD_PRELOAD=$preload ASAN_OPTIONS=detect_leaks=0 \
        LD_LIBRARY_PATH=$cuemu/fake STEPD_PLUGIN_DIR=$cuemu/$1 KT_BACKEND=cuda-emulated "$build/$2"
}
