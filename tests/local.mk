# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# tests/: programs with cmocka (one per tested file), scripts, lint. A program
# is added in its folder's local.mk in two lines:
#
#   check_PROGRAMS += tests/daemon/test_conf
#   tests_daemon_test_conf_LDADD = $(BASE_LIBS) $(TEST_LIBS)
#
# Its source is tests/daemon/test_conf.c, and it is a test by that alone.
# Scripts go to TESTS and EXTRA_DIST (dist_check_SCRIPTS). Exit 77 skips, with
# a reason on the output.

TEST_EXTENSIONS = .sh .py
SH_LOG_COMPILER = $(SHELL_BASH)
PY_LOG_COMPILER = /usr/bin/python3
SHELL_BASH = bash
TEST_LIBS = $(CMOCKA_LIBS)

AM_TESTS_ENVIRONMENT = \
	srcdir='$(srcdir)'; export srcdir; \
	builddir='$(abs_builddir)'; export builddir; \
	TEST_DATA='$(abs_top_srcdir)/tests/data'; export TEST_DATA; \
	TEST_DATA_BUILT='$(abs_top_builddir)/tests/data'; \
	export TEST_DATA_BUILT; \
	TEST_SHARED='$(abs_top_srcdir)/../shared'; export TEST_SHARED;

dist_check_SCRIPTS =
noinst_HEADERS = tests/test.h

if HAVE_CMOCKA
include tests/client/local.mk
include tests/kernels/local.mk
include tests/daemon/local.mk
endif
include tests/e2e/local.mk
include tests/lint/local.mk

TESTS += $(check_PROGRAMS) $(dist_check_SCRIPTS)
