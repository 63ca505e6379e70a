# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

EXTRA_DIST += tests/e2e/functions.sh
