# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

# ---- base: tests_daemon_test_X_LDADD = $(BASE_LIBS) $(TEST_LIBS) ----
check_PROGRAMS += tests/daemon/test_buf
tests_daemon_test_buf_LDADD = $(BASE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_conf
tests_daemon_test_conf_LDADD = $(BASE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_hist
tests_daemon_test_hist_LDADD = $(BASE_LIBS) $(TEST_LIBS) $(LIBM)
check_PROGRAMS += tests/daemon/test_log
tests_daemon_test_log_LDADD = $(BASE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_mbox
tests_daemon_test_mbox_LDADD = $(BASE_LIBS) $(TEST_LIBS)
TEST_THREADS += tests/daemon/test_mbox
check_PROGRAMS += tests/daemon/test_sd
tests_daemon_test_sd_LDADD = $(BASE_LIBS) $(TEST_LIBS)

# ---- text: tests_daemon_test_X_LDADD = $(TEXT_LIBS) $(TEST_LIBS) ----

noinst_HEADERS += tests/daemon/text.h tests/daemon/grams.h

check_PROGRAMS += tests/daemon/test_bpe
tests_daemon_test_bpe_LDADD = $(TEXT_LIBS) $(TEST_LIBS)

check_PROGRAMS += tests/daemon/test_chat
tests_daemon_test_chat_LDADD = $(TEXT_LIBS) $(TEST_LIBS)

check_PROGRAMS += tests/daemon/test_detok
tests_daemon_test_detok_LDADD = $(TEXT_LIBS) $(TEST_LIBS)

check_PROGRAMS += tests/daemon/test_parse
tests_daemon_test_parse_LDADD = $(TEXT_LIBS) $(TEST_LIBS)

check_PROGRAMS += tests/daemon/test_callgram
tests_daemon_test_callgram_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_daemon_test_callgram_LDADD = $(TEXT_LIBS) $(TEST_LIBS)

check_PROGRAMS += tests/daemon/test_schema
tests_daemon_test_schema_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_daemon_test_schema_LDADD = $(TEXT_LIBS) $(TEST_LIBS)

check_PROGRAMS += tests/daemon/test_pattern
tests_daemon_test_pattern_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_daemon_test_pattern_LDADD = $(TEXT_LIBS) $(TEST_LIBS)

check_PROGRAMS += tests/daemon/test_mask
tests_daemon_test_mask_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_daemon_test_mask_LDADD = $(TEXT_LIBS) $(TEST_LIBS)

check_PROGRAMS += tests/daemon/test_split
tests_daemon_test_split_LDADD = $(TEXT_LIBS) $(TEST_LIBS)

check_PROGRAMS += tests/daemon/test_text_memory
tests_daemon_test_text_memory_LDADD = $(TEXT_LIBS) $(TEST_LIBS)
tests_daemon_test_text_memory_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free

check_PROGRAMS += tests/daemon/test_tools
tests_daemon_test_tools_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_daemon_test_tools_LDADD = $(TEXT_LIBS) $(TEST_LIBS)

check_PROGRAMS += tests/daemon/test_tokenizer
tests_daemon_test_tokenizer_LDADD = $(TEXT_LIBS) $(TEST_LIBS)
TEST_THREADS += tests/daemon/test_tokenizer

check_PROGRAMS += tests/daemon/test_tokfile
tests_daemon_test_tokfile_LDADD = $(TEXT_LIBS) $(TEST_LIBS)

# Random answers to schemas, for test_schema_valid.sh.
EXTRA_PROGRAMS += tests/daemon/make_answers
tests_daemon_make_answers_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_daemon_make_answers_LDADD = $(TEXT_LIBS)
check_DATA += tests/daemon/make_answers$(EXEEXT)
dist_check_SCRIPTS += tests/daemon/test_schema_valid.sh

# ---- model: tests_daemon_test_X_LDADD = $(MODEL_LIBS) $(TEST_LIBS) ----
check_PROGRAMS += tests/daemon/test_shape
tests_daemon_test_shape_LDADD = $(MODEL_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_names
tests_daemon_test_names_LDADD = $(MODEL_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_safetensors
tests_daemon_test_safetensors_LDADD = $(MODEL_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_checkpoint
tests_daemon_test_checkpoint_LDADD = $(CKPT_LIBS) $(MODEL_LIBS) $(TEST_LIBS)
noinst_HEADERS += tests/daemon/opened.h tests/daemon/failing.h
check_PROGRAMS += tests/daemon/test_checkpoint_memory
tests_daemon_test_checkpoint_memory_LDADD = $(CKPT_LIBS) $(MODEL_LIBS) \
	$(TEST_LIBS)
tests_daemon_test_checkpoint_memory_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
check_PROGRAMS += tests/daemon/test_report
tests_daemon_test_report_LDADD = $(MODEL_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_refused
tests_daemon_test_refused_LDADD = $(CKPT_LIBS) $(MODEL_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_plan
tests_daemon_test_plan_LDADD = $(CKPT_LIBS) daemon/libmodel.a \
	$(KERNELS_REF) $(MODEL_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_weights
TEST_THREADS += tests/daemon/test_weights
tests_daemon_test_weights_LDADD = $(CKPT_LIBS) daemon/libmodel.a \
	$(KERNELS_REF) $(MODEL_LIBS) $(TEST_LIBS)

# What tests of steps share (mk.h), with ref to compare with.
check_LIBRARIES += tests/daemon/libmk.a
tests_daemon_libmk_a_SOURCES = tests/daemon/guard.c tests/daemon/guard.h \
	tests/daemon/mk.c tests/daemon/mk.h
MK_LIBS = tests/daemon/libmk.a daemon/libmodel.a $(KERNELS_REF) \
	$(KERNELS_LIBS) $(JANSSON_LIBS) $(PCRE2_LIBS) $(BASE_LIBS) \
	$(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_forward
tests_daemon_test_forward_LDADD = $(MK_LIBS)
check_PROGRAMS += tests/daemon/test_step
tests_daemon_test_step_LDADD = $(MK_LIBS)
check_PROGRAMS += tests/daemon/test_stream
tests_daemon_test_stream_LDADD = $(CKPT_LIBS) $(MK_LIBS)
tests_daemon_test_stream_LDFLAGS = -Wl,--wrap=pread
check_PROGRAMS += tests/daemon/test_replay
tests_daemon_test_replay_LDADD = $(MK_LIBS)
check_PROGRAMS += tests/daemon/test_compact
TEST_THREADS += tests/daemon/test_compact
tests_daemon_test_compact_LDADD = $(CKPT_LIBS) $(MK_LIBS)
check_PROGRAMS += tests/daemon/test_mode
tests_daemon_test_mode_LDADD = $(CKPT_LIBS) $(MK_LIBS)
check_PROGRAMS += tests/daemon/test_synth
tests_daemon_test_synth_LDADD = $(CKPT_LIBS) $(MK_LIBS)
check_PROGRAMS += tests/daemon/test_depth
tests_daemon_test_depth_LDADD = $(MODEL_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_lossless
tests_daemon_test_lossless_LDADD = $(MK_LIBS)
check_PROGRAMS += tests/daemon/test_mtp
tests_daemon_test_mtp_LDADD = $(CKPT_LIBS) $(MK_LIBS)
check_PROGRAMS += tests/daemon/test_sample
tests_daemon_test_sample_LDADD = $(MODEL_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_kv
tests_daemon_test_kv_LDADD = $(MK_LIBS)

# ---- sched: tests_daemon_test_X_LDADD = $(SCHED_LIBS) $(TEST_LIBS) ----

# The planner, the pages and the tables need no model.
SCHED_ALONE_LIBS = daemon/libsched.a $(TEXT_LIBS)
check_PROGRAMS += tests/daemon/test_batch tests/daemon/test_batch_sim
tests_daemon_test_batch_SOURCES = tests/daemon/test_batch.c \
	tests/daemon/batch_scene.h
tests_daemon_test_batch_LDADD = $(SCHED_ALONE_LIBS) $(TEST_LIBS)
tests_daemon_test_batch_sim_SOURCES = tests/daemon/test_batch_sim.c \
	tests/daemon/batch_scene.h
tests_daemon_test_batch_sim_LDADD = $(SCHED_ALONE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_spec
tests_daemon_test_spec_LDADD = $(SCHED_ALONE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_faults
tests_daemon_test_faults_LDADD = $(SCHED_ALONE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_job
tests_daemon_test_job_LDADD = $(SCHED_ALONE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_prefix
tests_daemon_test_prefix_LDADD = $(SCHED_ALONE_LIBS) $(TEST_LIBS)

check_PROGRAMS += tests/daemon/test_store
tests_daemon_test_store_LDADD = $(SCHED_ALONE_LIBS) client/libwire.la \
	$(TEST_LIBS)
tests_daemon_test_store_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=write \
	-Wl,--wrap=fsync,--wrap=renameat
check_PROGRAMS += tests/daemon/test_named
tests_daemon_test_named_LDADD = $(SCHED_ALONE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_kvpool
tests_daemon_test_kvpool_LDADD = $(SCHED_ALONE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_session
tests_daemon_test_session_LDADD = $(SCHED_ALONE_LIBS) $(TEST_LIBS)
# The rest runs over a fake model (fake_model.h) in place of libmodel.a.
SCHED_FAKE_LIBS = daemon/libsched.a $(TEXT_LIBS)
SCHED_FAKE = tests/daemon/fake_model.c tests/daemon/fake_model.h \
	tests/daemon/answers.h
check_PROGRAMS += tests/daemon/test_core
tests_daemon_test_core_SOURCES = tests/daemon/test_core.c \
	tests/daemon/core_rig.h $(SCHED_FAKE)
tests_daemon_test_core_LDADD = $(SCHED_FAKE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_core_cache
tests_daemon_test_core_cache_SOURCES = tests/daemon/test_core_cache.c \
	$(SCHED_FAKE) tests/daemon/core_rig.h
tests_daemon_test_core_cache_LDADD = $(SCHED_FAKE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_core_owner
tests_daemon_test_core_owner_SOURCES = tests/daemon/test_core_owner.c \
	$(SCHED_FAKE) tests/daemon/core_rig.h
tests_daemon_test_core_owner_LDADD = $(SCHED_FAKE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_core_sessions
tests_daemon_test_core_sessions_SOURCES = tests/daemon/test_core_sessions.c \
	$(SCHED_FAKE) tests/daemon/core_rig.h tests/daemon/sessions_rig.h
tests_daemon_test_core_sessions_LDADD = $(SCHED_FAKE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_core_named
tests_daemon_test_core_named_SOURCES = tests/daemon/test_core_named.c \
	$(SCHED_FAKE) tests/daemon/core_rig.h tests/daemon/sessions_rig.h
tests_daemon_test_core_named_LDADD = $(SCHED_FAKE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_core_end
tests_daemon_test_core_end_SOURCES = tests/daemon/test_core_end.c \
	tests/daemon/core_rig.h $(SCHED_FAKE)
tests_daemon_test_core_end_LDADD = $(SCHED_FAKE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_core_step
tests_daemon_test_core_step_SOURCES = tests/daemon/test_core_step.c \
	tests/daemon/core_rig.h $(SCHED_FAKE)
tests_daemon_test_core_step_LDADD = $(SCHED_FAKE_LIBS) $(TEST_LIBS)
tests_daemon_test_core_step_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=batch_plan
check_PROGRAMS += tests/daemon/test_core_memory
tests_daemon_test_core_memory_SOURCES = tests/daemon/test_core_memory.c \
	tests/daemon/core_rig.h $(SCHED_FAKE)
tests_daemon_test_core_memory_LDADD = $(SCHED_FAKE_LIBS) $(TEST_LIBS)
tests_daemon_test_core_memory_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=xcalloc \
	-Wl,--wrap=model_seq_open,--wrap=model_submit,--wrap=model_collect
check_PROGRAMS += tests/daemon/test_deliver
tests_daemon_test_deliver_SOURCES = tests/daemon/test_deliver.c \
	tests/daemon/answers.h
tests_daemon_test_deliver_LDADD = $(SCHED_FAKE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_engine
tests_daemon_test_engine_SOURCES = tests/daemon/test_engine.c \
	tests/daemon/engine_rig.h $(SCHED_FAKE)
tests_daemon_test_engine_LDADD = $(SCHED_FAKE_LIBS) $(TEST_LIBS)
TEST_THREADS += tests/daemon/test_engine
# And this one over the real thing.
check_PROGRAMS += tests/daemon/test_engine_tiny
tests_daemon_test_engine_tiny_SOURCES = tests/daemon/test_engine_tiny.c \
	tests/daemon/engine_rig.h tests/daemon/answers.h
tests_daemon_test_engine_tiny_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_daemon_test_engine_tiny_LDADD = $(SCHED_LIBS) $(TEST_LIBS)
tests_daemon_test_engine_tiny_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=model_open,--wrap=model_submit
TEST_THREADS += tests/daemon/test_engine_tiny
check_PROGRAMS += tests/daemon/test_promise
tests_daemon_test_promise_SOURCES = tests/daemon/test_promise.c \
	tests/daemon/engine_rig.h tests/daemon/answers.h
tests_daemon_test_promise_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_daemon_test_promise_LDADD = $(SCHED_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_turns
tests_daemon_test_turns_LDADD = $(SCHED_FAKE_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_limits
tests_daemon_test_limits_SOURCES = tests/daemon/test_limits.c \
	tests/daemon/engine_rig.h tests/daemon/answers.h
tests_daemon_test_limits_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_daemon_test_limits_LDADD = $(SCHED_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_prep
tests_daemon_test_prep_SOURCES = tests/daemon/test_prep.c \
	tests/daemon/answers.h
tests_daemon_test_prep_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
tests_daemon_test_prep_LDADD = $(SCHED_FAKE_LIBS) $(TEST_LIBS)
TEST_THREADS += tests/daemon/test_prep

# ---- net: tests_daemon_test_X_LDADD = $(NET_LIBS) $(TEST_LIBS) ----
noinst_HEADERS += tests/daemon/fake_engine.h tests/daemon/net_bench.h
check_PROGRAMS += tests/daemon/test_listen
tests_daemon_test_listen_LDADD = $(NET_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_peer
tests_daemon_test_peer_LDADD = $(NET_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_reply
tests_daemon_test_reply_LDADD = $(NET_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_request
tests_daemon_test_request_LDADD = $(NET_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_conn
tests_daemon_test_conn_SOURCES = tests/daemon/test_conn.c \
	tests/daemon/fake_engine.c
tests_daemon_test_conn_LDADD = $(NET_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_server
tests_daemon_test_server_SOURCES = tests/daemon/test_server.c \
	tests/daemon/fake_engine.c
tests_daemon_test_server_LDADD = $(NET_LIBS) $(TEST_LIBS)
check_PROGRAMS += tests/daemon/test_account tests/daemon/test_status
tests_daemon_test_account_SOURCES = tests/daemon/test_account.c \
	tests/daemon/fake_engine.c
tests_daemon_test_account_LDADD = $(NET_LIBS) $(TEST_LIBS)
tests_daemon_test_status_SOURCES = tests/daemon/test_status.c \
	tests/daemon/fake_engine.c
tests_daemon_test_status_LDADD = $(NET_LIBS) $(TEST_LIBS)
