# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# tests/: programs with cmocka (one per tested file), scripts, lint. A program
# is added in its folder's local.mk in two lines:
#
#   check_PROGRAMS += tests/daemon/test_conf
#   tests_daemon_test_conf_LDADD = $(BASE_LIBS) $(TEST_LIBS)
#
# Its source is tests/daemon/test_conf.c, and it is a test by that alone. A
# script is one word in dist_check_SCRIPTS. Exit 77 skips, with a reason on the
# output. Where threads meet, the program is also in TEST_THREADS.

TEST_LIBS = $(CMOCKA_LIBS)

# A test that hangs fails; it does not hold up everything behind it. Set it
# empty to run one under a debugger.
TEST_GUARD = timeout -k 10 900

TEST_EXTENSIONS = .sh .py
LOG_COMPILER = $(TEST_GUARD)
SH_LOG_COMPILER = $(TEST_GUARD) bash
PY_LOG_COMPILER = $(TEST_GUARD) $(PYTHON3)

AM_TESTS_ENVIRONMENT = \
	srcdir='$(abs_top_srcdir)'; export srcdir; \
	builddir='$(abs_top_builddir)'; export builddir; \
	PYTHON3='$(PYTHON3)'; export PYTHON3; \
	MALLOC_PERTURB_=165; export MALLOC_PERTURB_; \
	ASAN_OPTIONS="$${ASAN_OPTIONS-detect_leaks=1}"; export ASAN_OPTIONS; \
	UBSAN_OPTIONS="$${UBSAN_OPTIONS-print_stacktrace=1:halt_on_error=1}"; \
	export UBSAN_OPTIONS; \
	TSAN_OPTIONS="$${TSAN_OPTIONS-halt_on_error=1}"; export TSAN_OPTIONS;

# ---- bundled data -------------------------------------------------------
# Plain files are used where they lie; the two archives are unpacked into the
# build tree.

TEST_DATA_FILES = \
	tests/data/README.md \
	tests/data/chat-goldens.jsonl \
	tests/data/chat-random.jsonl \
	tests/data/config-step-3.7-flash.json \
	tests/data/micro.tar.xz \
	tests/data/oracle/README.md \
	tests/data/oracle/bpe.py \
	tests/data/oracle/chat_format.py \
	tests/data/oracle/checkpoint.py \
	tests/data/oracle/corpus.py \
	tests/data/oracle/make_micro.py \
	tests/data/oracle/make_tiny.py \
	tests/data/oracle/mxfp4.py \
	tests/data/oracle/parse_cases.py \
	tests/data/oracle/rounded.py \
	tests/data/oracle/step_ref.py \
	tests/data/oracle/tool_calls.py \
	tests/data/oracle/train_tiny.py \
	tests/data/schemas.jsonl \
	tests/data/parse/calls.json \
	tests/data/parse/no-tools.json \
	tests/data/parse/random.json \
	tests/data/parse/reasoning.json \
	tests/data/parse/values.json \
	tests/data/real-tokenizer/cases.tsv \
	tests/data/real-tokenizer/random.tsv \
	tests/data/real-tokenizer/tokenizer.json.xz \
	tests/data/step-tiny/config.json \
	tests/data/step-tiny/golden-greedy.json \
	tests/data/step-tiny/golden.safetensors \
	tests/data/step-tiny/model-00001.safetensors \
	tests/data/step-tiny/model-00002.safetensors \
	tests/data/step-tiny/model-00003.safetensors \
	tests/data/step-tiny/model.safetensors.index.json \
	tests/data/step-tiny/tokenizer.json \
	tests/data/step-tiny/tokenizer_config.json
EXTRA_DIST += $(TEST_DATA_FILES)

check_DATA += tests/data/unpacked.stamp
tests/data/unpacked.stamp: tests/data/micro.tar.xz \
		tests/data/real-tokenizer/tokenizer.json.xz
	$(AM_V_GEN)$(MKDIR_P) tests/data/real-tokenizer && \
	xz -dc $(srcdir)/tests/data/micro.tar.xz | \
	    (cd tests/data && tar -xmf -) && \
	xz -dc $(srcdir)/tests/data/real-tokenizer/tokenizer.json.xz \
	    >tests/data/real-tokenizer/tokenizer.json && \
	touch $@
CLEANFILES += tests/data/unpacked.stamp \
	tests/data/real-tokenizer/tokenizer.json

clean-local: clean-systemd clean-deb
	rm -rf tests/data/micro

# ---- programs and scripts -------------------------------------------------

dist_check_SCRIPTS =
noinst_HEADERS = tests/test.h

# Synthetic checkpoints, for tests and benchmarks; make_synth for scripts.
EXTRA_LIBRARIES = tests/libsynth.a
tests_libsynth_a_SOURCES = tests/synth.c tests/synth.h tests/synth_numbers.c
tests_libsynth_a_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
EXTRA_PROGRAMS += tests/make_synth
tests_make_synth_LDADD = tests/libsynth.a $(JANSSON_LIBS) $(LIBM)
CLEANFILES += tests/libsynth.a tests/libckpt.a

# Damage to checkpoints, for cmocka programs.
EXTRA_LIBRARIES += tests/libckpt.a
tests_libckpt_a_SOURCES = tests/ckpt.c tests/ckpt.h
tests_libckpt_a_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
CKPT_LIBS = tests/libckpt.a tests/libsynth.a $(JANSSON_LIBS) $(LIBM)
EXTRA_DIST += tests/paths.h.in

# What check-threads runs: programs and scripts in which threads meet. The
# ThreadSanitizer pass of ./bootstrap check is this list.
TEST_THREADS =
TEST_THREADS_SH =

if HAVE_CMOCKA
check_PROGRAMS += tests/test_test
tests_test_test_LDADD = $(TEST_LIBS) $(LIBM)

include tests/client/local.mk
include tests/kernels/local.mk
include tests/daemon/local.mk
endif
include tests/cuemu/local.mk
include tests/fuzz/local.mk
include tests/e2e/local.mk
include tests/lint/local.mk
include tests/bench/local.mk
include tests/systemd/local.mk

# The longest are scripts: first, so that none of them is left alone at the end.
TESTS += $(dist_check_SCRIPTS) $(check_PROGRAMS)

# all-am: in this make; `all` is one of its own, and beside what else is wanted
# here both would build the same objects.
check-threads: all-am $(check_DATA) $(TEST_THREADS)
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS \
	    TESTS='$(TEST_THREADS) $(TEST_THREADS_SH)'
.PHONY: check-threads

# The kernels' tests for aarch64, under qemu-user; skips without a cross
# compiler.
EXTRA_DIST += tests/kernels/check_aarch64.sh tests/kernels/cross/cmocka.h
check-aarch64:
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='tests/kernels/check_aarch64.sh'
.PHONY: check-aarch64
