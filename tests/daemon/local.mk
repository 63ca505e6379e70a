# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

# ---- base: tests_daemon_test_X_LDADD = $(BASE_LIBS) $(TEST_LIBS) ----

# ---- text: tests_daemon_test_X_LDADD = $(TEXT_LIBS) $(TEST_LIBS) ----

# ---- model: tests_daemon_test_X_LDADD = $(MODEL_LIBS) $(TEST_LIBS) ----

# ---- sched: tests_daemon_test_X_LDADD = $(SCHED_LIBS) $(TEST_LIBS) ----

# ---- net: tests_daemon_test_X_LDADD = $(NET_LIBS) $(TEST_LIBS) ----
