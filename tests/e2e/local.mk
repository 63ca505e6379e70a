# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

EXTRA_DIST += tests/e2e/functions.sh

dist_check_SCRIPTS += tests/e2e/test_functions.sh \
	tests/e2e/test_protocol.sh
