# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The units under a real systemd: make check-systemd. Each script boots one in a
# box of its own; without root, or where no box can be made, it skips.

SYSTEMD_TESTS = \
	tests/systemd/test_service.sh \
	tests/systemd/test_reload.sh \
	tests/systemd/test_start.sh \
	tests/systemd/test_watchdog.sh \
	tests/systemd/test_failed_start.sh \
	tests/systemd/test_restart.sh \
	tests/systemd/test_users.sh \
	tests/systemd/test_operator.sh \
	tests/systemd/test_sandbox.sh \
	tests/systemd/test_e2e.sh \
	tests/systemd/test_drills.sh \
	tests/systemd/test_deb.sh
EXTRA_DIST += $(SYSTEMD_TESTS) tests/systemd/functions.sh \
	tests/systemd/systemd-box

EXTRA_LTLIBRARIES = tests/systemd/slow_read.la
tests_systemd_slow_read_la_SOURCES = tests/systemd/slow_read.c
tests_systemd_slow_read_la_LDFLAGS = -module -avoid-version -rpath /nowhere
CLEANFILES += tests/systemd/slow_read.la

# What is installed in each box.
tests/systemd/root.stamp: all
	$(AM_V_GEN)rm -rf tests/systemd/root && \
	$(MAKE) $(AM_MAKEFLAGS) -s install \
	    DESTDIR="$$(pwd)/tests/systemd/root" >/dev/null 2>&1 && touch $@

# One after the other: each boots a system.
check-systemd: tests/systemd/root.stamp tests/systemd/slow_read.la
	$(MAKE) $(AM_MAKEFLAGS) -j1 check-TESTS TESTS='$(SYSTEMD_TESTS)'
.PHONY: check-systemd

clean-systemd:
	rm -rf tests/systemd/root tests/systemd/root.stamp
.PHONY: clean-systemd
