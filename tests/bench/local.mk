# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# `make bench` prints tables and asserts nothing: each word of BENCH is a
# program (also in EXTRA_PROGRAMS) or a script (also in EXTRA_DIST), run in
# this order.

BENCH =

EXTRA_PROGRAMS += tests/bench/bench_daemon
tests_bench_bench_daemon_SOURCES = tests/bench/bench_daemon.c \
	tests/bench/probe.c tests/bench/probe.h
tests_bench_bench_daemon_LDADD = client/libstepclient.la $(KERNELS_LIBS)
BENCH += tests/bench/bench_daemon
BENCH += tests/bench/bench_load
EXTRA_PROGRAMS += tests/bench/bench_load
tests_bench_bench_load_LDADD = tests/libsynth.a $(MODEL_LIBS)

# Ops against what the machine can do, measured beside them (probe.h).
EXTRA_PROGRAMS += tests/bench/bench_linear
BENCH += tests/bench/bench_linear
tests_bench_bench_linear_SOURCES = tests/bench/bench_linear.c \
	tests/bench/probe.c tests/bench/probe.h
tests_bench_bench_linear_LDADD = $(KERNELS_LIBS)

bench: all-am $(BENCH)
	@for b in $(BENCH); do \
	    test -f $$b || b=$(srcdir)/$$b; \
	    case $$b in \
	    *.sh) srcdir='$(abs_top_srcdir)' builddir='$(abs_top_builddir)' \
	        bash $$b ;; \
	    *) ./$$b ;; \
	    esac || exit 1; \
	done
.PHONY: bench

BENCH += tests/bench/bench_tokenizer
EXTRA_PROGRAMS += tests/bench/bench_tokenizer
tests_bench_bench_tokenizer_LDADD = $(TEXT_LIBS)

EXTRA_PROGRAMS += tests/bench/bench_sample
BENCH += tests/bench/bench_sample
tests_bench_bench_sample_SOURCES = tests/bench/bench_sample.c \
	tests/bench/probe.c tests/bench/probe.h
tests_bench_bench_sample_LDADD = $(KERNELS_LIBS)

EXTRA_PROGRAMS += tests/bench/bench_drafts
BENCH += tests/bench/bench_drafts
tests_bench_bench_drafts_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_bench_bench_drafts_LDADD = tests/libsynth.a $(MODEL_LIBS)

EXTRA_PROGRAMS += tests/bench/bench_expert tests/bench/bench_attn
BENCH += tests/bench/bench_expert tests/bench/bench_attn
tests_bench_bench_expert_SOURCES = tests/bench/bench_expert.c \
	tests/bench/probe.c tests/bench/probe.h
tests_bench_bench_expert_LDADD = $(KERNELS_LIBS)
tests_bench_bench_attn_SOURCES = tests/bench/bench_attn.c \
	tests/bench/probe.c tests/bench/probe.h
tests_bench_bench_attn_LDADD = $(KERNELS_LIBS)

# How soon sleeping threads are at work again, and what they use until then.
EXTRA_PROGRAMS += tests/bench/bench_pool
BENCH += tests/bench/bench_pool
tests_bench_bench_pool_SOURCES = tests/bench/bench_pool.c \
	tests/bench/probe.c tests/bench/probe.h
tests_bench_bench_pool_LDADD = $(BASE_LIBS) $(KERNELS_LIBS)

# `make check` links them all, so that none is found broken when it is wanted.
check-local: tests/bench/bench_attn$(EXEEXT) tests/bench/bench_core$(EXEEXT) \
	tests/bench/bench_daemon$(EXEEXT) tests/bench/bench_drafts$(EXEEXT) \
	tests/bench/bench_expert$(EXEEXT) tests/bench/bench_gpu$(EXEEXT) \
	tests/bench/bench_linear$(EXEEXT) tests/bench/bench_load$(EXEEXT) \
	tests/bench/bench_mask$(EXEEXT) tests/bench/bench_model$(EXEEXT) \
	tests/bench/bench_pool$(EXEEXT) tests/bench/bench_sample$(EXEEXT) \
	tests/bench/bench_session$(EXEEXT) tests/bench/bench_tokenizer$(EXEEXT)

# The kernels of a device against kernels/cuda/ROOFLINE.md; skips without one.
EXTRA_PROGRAMS += tests/bench/bench_gpu
tests_bench_bench_gpu_LDADD = $(KERNELS_LIBS)
bench-gpu: all-am tests/bench/bench_gpu$(EXEEXT)
	@STEPD_PLUGIN_DIR=kernels/cuda tests/bench/bench_gpu$(EXEEXT) | \
	    $(PYTHON3) $(srcdir)/tests/cuemu/roofline.py \
	        $(srcdir)/tests/data/config-step-3.7-flash.json --measured
.PHONY: bench-gpu

# Whole models; writes some 20 GB of checkpoints once and keeps them:
# make bench-model ARGS='--model C --quick'
EXTRA_PROGRAMS += tests/bench/bench_model
tests_bench_bench_model_SOURCES = tests/bench/bench_model.c \
	tests/bench/opclock.c tests/bench/opclock.h \
	tests/bench/streams.c tests/bench/streams.h \
	tests/bench/probe.c tests/bench/probe.h
tests_bench_bench_model_LDADD = tests/libsynth.a $(MODEL_LIBS)

bench-model: tests/bench/bench_model$(EXEEXT)
	tests/bench/bench_model$(EXEEXT) $(ARGS)
.PHONY: bench-model

EXTRA_PROGRAMS += tests/bench/bench_mask
BENCH += tests/bench/bench_mask
tests_bench_bench_mask_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_bench_bench_mask_LDADD = daemon/libsched.a $(TEXT_LIBS)

# The scheduler over a model that takes no time.
EXTRA_PROGRAMS += tests/bench/bench_core
BENCH += tests/bench/bench_core
tests_bench_bench_core_LDADD = daemon/libsched.a $(TEXT_LIBS)

# A saved session of 32,768 tokens, restored; over model D of bench-model.
EXTRA_PROGRAMS += tests/bench/bench_session
tests_bench_bench_session_SOURCES = tests/bench/bench_session.c \
	tests/bench/probe.c tests/bench/probe.h
tests_bench_bench_session_LDADD = $(SCHED_LIBS)

bench-session: tests/bench/bench_session$(EXEEXT)
	tests/bench/bench_session$(EXEEXT) $(ARGS)
.PHONY: bench-session

# The whole service over model B of bench-model, with the bundled tokenizer; with
# STATE_DIR=DIR of packed weights, which are kept there.
bench-daemon: all-am tests/bench/bench_daemon$(EXEEXT)
	@d=$$(mktemp -d) && trap 'rm -rf "$$d"' EXIT && \
	ln -s "$${STEPD_BENCH_DIR:-/tmp/bench-model}"/B/* \
	    '$(abs_top_srcdir)'/tests/data/step-tiny/tokenizer*.json "$$d" && \
	tests/bench/bench_daemon$(EXEEXT) daemon/stepd$(EXEEXT) "$$d" 16 3 $(STATE_DIR)
.PHONY: bench-daemon
