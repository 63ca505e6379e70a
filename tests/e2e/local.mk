# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

EXTRA_DIST += tests/e2e/functions.sh

dist_check_SCRIPTS += tests/e2e/test_functions.sh \
	tests/e2e/test_protocol.sh

# The daemon from outside: real processes, a real socket.
dist_check_SCRIPTS += \
	tests/e2e/test_bench.sh \
	tests/e2e/test_bytes.sh \
	tests/e2e/test_format.sh \
	tests/e2e/test_score.sh \
	tests/e2e/test_tool_choice.sh \
	tests/e2e/test_cli_real.sh \
	tests/e2e/test_config.sh \
	tests/e2e/test_disconnect.sh \
	tests/e2e/test_drafts.sh \
	tests/e2e/test_examples.sh \
	tests/e2e/test_failures.sh \
	tests/e2e/test_fr_19.sh \
	tests/e2e/test_held_step.sh \
	tests/e2e/test_sessions.sh \
	tests/e2e/test_idle_exit.sh \
	tests/e2e/test_loading.sh \
	tests/e2e/test_many.sh \
	tests/e2e/test_metrics_http.sh \
	tests/e2e/test_nan.sh \
	tests/e2e/test_no_memory.py \
	tests/e2e/test_no_text.sh \
	tests/e2e/test_notify.sh \
	tests/e2e/test_shards.sh \
	tests/e2e/test_slow_client.sh \
	tests/e2e/test_soak.sh \
	tests/e2e/test_socket.sh \
	tests/e2e/test_stop.sh \
	tests/e2e/test_tools.sh

# Preloaded by test_no_memory.py.
check_LTLIBRARIES += tests/e2e/fail_malloc.la
tests_e2e_fail_malloc_la_SOURCES = tests/e2e/fail_malloc.c
tests_e2e_fail_malloc_la_LDFLAGS = -module -avoid-version -shared -rpath /none

# The long soak; test_soak.sh is the short one. SOAK_SEED repeats a run.
SOAK_SECONDS = 600
EXTRA_DIST += tests/e2e/soak.py
soak: all
	srcdir='$(abs_top_srcdir)' builddir='$(abs_top_builddir)' \
	PYTHON3='$(PYTHON3)' MALLOC_PERTURB_=165 \
	SOAK_SECONDS='$(SOAK_SECONDS)' bash $(srcdir)/tests/e2e/test_soak.sh
.PHONY: soak
