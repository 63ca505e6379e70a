# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

EXTRA_DIST += tests/e2e/functions.sh

dist_check_SCRIPTS += tests/e2e/test_functions.sh \
	tests/e2e/test_protocol.sh

# The daemon from outside: real processes, a real socket.
dist_check_SCRIPTS += \
	tests/e2e/test_bytes.sh \
	tests/e2e/test_cli_real.sh \
	tests/e2e/test_config.sh \
	tests/e2e/test_disconnect.sh \
	tests/e2e/test_drafts.sh \
	tests/e2e/test_examples.sh \
	tests/e2e/test_fr_19.sh \
	tests/e2e/test_held_step.sh \
	tests/e2e/test_idle_exit.sh \
	tests/e2e/test_loading.sh \
	tests/e2e/test_many.sh \
	tests/e2e/test_metrics_http.sh \
	tests/e2e/test_no_text.sh \
	tests/e2e/test_notify.sh \
	tests/e2e/test_shards.sh \
	tests/e2e/test_slow_client.sh \
	tests/e2e/test_socket.sh \
	tests/e2e/test_stop.sh
