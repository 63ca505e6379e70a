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

# ---- bundled data -------------------------------------------------------
# Plain files are used where they lie; the two archives are unpacked into the
# build tree.

TEST_DATA_FILES = \
	tests/data/README.md \
	tests/data/chat-goldens.jsonl \
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
	tests/data/oracle/rounded.py \
	tests/data/oracle/step_ref.py \
	tests/data/oracle/train_tiny.py \
	tests/data/real-tokenizer/cases.tsv \
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

clean-local:
	rm -rf tests/data/micro

# ---- programs and scripts -------------------------------------------------

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
