#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# kernels/cuda/ROOFLINE.md is what the program computes from the real config.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
"${PYTHON3:-python3}" "$top/tests/cuemu/roofline.py" \
    "$top/tests/data/config-step-3.7-flash.json" |
    diff "$top/kernels/cuda/ROOFLINE.md" -
