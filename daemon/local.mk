# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# daemon/: one archive per layer, so that tests link only what they test, and
# stepd itself, which adds main.c.

DAEMON_CPPFLAGS = $(AM_CPPFLAGS) -DSTEPD_CONFDIR='"$(sysconfdir)/stepd"'

noinst_LIBRARIES += daemon/libbase.a
daemon_libbase_a_SOURCES = \
	daemon/base/buf.c \
	daemon/base/buf.h \
	daemon/base/conf.c \
	daemon/base/conf.h \
	daemon/base/conf_value.c \
	daemon/base/conf_value.h \
	daemon/base/die.c \
	daemon/base/die.h \
	daemon/base/hist.c \
	daemon/base/hist.h \
	daemon/base/jmem.c \
	daemon/base/jmem.h \
	daemon/base/lfs.h \
	daemon/base/log.c \
	daemon/base/log.h \
	daemon/base/mbox.c \
	daemon/base/mbox.h \
	daemon/base/sd.c \
	daemon/base/sd.h
daemon_libbase_a_CPPFLAGS = $(DAEMON_CPPFLAGS) $(INIH_CFLAGS) \
	$(SYSTEMD_CFLAGS) $(XXHASH_CFLAGS)

noinst_LIBRARIES += daemon/libtext.a
daemon_libtext_a_SOURCES = \
	daemon/text/added.c daemon/text/added.h \
	daemon/text/badwords.c daemon/text/badwords.h \
	daemon/text/bpe.c daemon/text/bpe.h \
	daemon/text/callgram.c daemon/text/callgram.h \
	daemon/text/charset.c daemon/text/charset.h \
	daemon/text/call.c daemon/text/call.h \
	daemon/text/chat.c daemon/text/chat.h \
	daemon/text/content.c daemon/text/content.h \
	daemon/text/choice.c daemon/text/choice.h \
	daemon/text/coerce.c daemon/text/coerce.h \
	daemon/text/detok.c daemon/text/detok.h \
	daemon/text/format.c daemon/text/format.h \
	daemon/text/gram.c daemon/text/gram.h \
	daemon/text/jsongram.c daemon/text/jsongram.h \
	daemon/text/machine.c daemon/text/machine.h \
	daemon/text/mask.c daemon/text/mask.h \
	daemon/text/grow.c daemon/text/grow.h \
	daemon/text/parse.c daemon/text/parse.h \
	daemon/text/pattern.c daemon/text/pattern.h \
	daemon/text/pattern_parse.c daemon/text/pattern_priv.h \
	daemon/text/prose.c daemon/text/prose.h \
	daemon/text/pyjson.c daemon/text/pyjson.h \
	daemon/text/pyvalue.c daemon/text/pyvalue.h \
	daemon/text/reason.c daemon/text/reason.h \
	daemon/text/regex.c daemon/text/regex.h \
	daemon/text/scan.c daemon/text/scan.h \
	daemon/text/schema.c daemon/text/schema.h \
	daemon/text/schema_inside.c daemon/text/schema_priv.h \
	daemon/text/schema_shape.c \
	daemon/text/slice.c daemon/text/slice.h \
	daemon/text/split.c daemon/text/split.h \
	daemon/text/str.c daemon/text/str.h \
	daemon/text/tokenizer.c daemon/text/tokenizer.h \
	daemon/text/tokfile.c daemon/text/tokfile.h \
	daemon/text/toktrie.c daemon/text/toktrie.h \
	daemon/text/tokvocab.c \
	daemon/text/tools.c daemon/text/tools.h \
	daemon/text/transcript.c daemon/text/transcript.h \
	daemon/text/utf8.h \
	daemon/text/vocab.c daemon/text/vocab.h \
	daemon/text/why.h
daemon_libtext_a_CPPFLAGS = $(DAEMON_CPPFLAGS) $(JANSSON_CFLAGS) \
	$(PCRE2_CFLAGS)

noinst_LIBRARIES += daemon/libmodel.a
daemon_libmodel_a_SOURCES = \
	daemon/model/available.c \
	daemon/model/available.h \
	daemon/model/bufs.c \
	daemon/model/bufs.h \
	daemon/model/check.c \
	daemon/model/checkpoint.c \
	daemon/model/checkpoint.h \
	daemon/model/compact.c \
	daemon/model/compact.h \
	daemon/model/compact_device.c \
	daemon/model/compact_priv.h \
	daemon/model/config.c \
	daemon/model/config.h \
	daemon/model/depth.c \
	daemon/model/depth.h \
	daemon/model/draw.c \
	daemon/model/draw.h \
	daemon/model/fill.c \
	daemon/model/folder.c \
	daemon/model/forward.c \
	daemon/model/forward.h \
	daemon/model/kv.c \
	daemon/model/kv.h \
	daemon/model/json.c \
	daemon/model/json.h \
	daemon/model/load.c daemon/model/stream.c daemon/model/stream.h \
	daemon/model/load.h \
	daemon/model/mode.c \
	daemon/model/mode.h \
	daemon/model/model.c \
	daemon/model/model.h \
	daemon/model/mtp.c \
	daemon/model/mtp.h \
	daemon/model/names.c \
	daemon/model/names.h \
	daemon/model/opening.h \
	daemon/model/outcome.c \
	daemon/model/plan.c \
	daemon/model/plan.h \
	daemon/model/quant.c \
	daemon/model/quant.h \
	daemon/model/report.c \
	daemon/model/report.h \
	daemon/model/safetensors.c \
	daemon/model/safetensors.h \
	daemon/model/sample.c \
	daemon/model/sample.h \
	daemon/model/seq.c \
	daemon/model/shape.c \
	daemon/model/shape.h \
	daemon/model/slots.c \
	daemon/model/slots.h \
	daemon/model/span.c \
	daemon/model/stage.c \
	daemon/model/state.h \
	daemon/model/step.c \
	daemon/model/trace.c \
	daemon/model/watch.c \
	daemon/model/watch.h \
	daemon/model/weights.c \
	daemon/model/weights.h
daemon_libmodel_a_CPPFLAGS = $(DAEMON_CPPFLAGS) $(JANSSON_CFLAGS) \
	$(PCRE2_CFLAGS) $(XXHASH_CFLAGS)

noinst_LIBRARIES += daemon/libsched.a
daemon_libsched_a_SOURCES = \
	daemon/sched/admit.c \
	daemon/sched/admit.h \
	daemon/sched/batch.c \
	daemon/sched/batch.h \
	daemon/sched/core.c \
	daemon/sched/core.h \
	daemon/sched/core_cache.c \
	daemon/sched/core_named.c \
	daemon/sched/core_owner.c \
	daemon/sched/core_priv.h \
	daemon/sched/core_save.c \
	daemon/sched/core_step.c \
	daemon/sched/deliver.c \
	daemon/sched/deliver.h \
	daemon/sched/engine.c \
	daemon/sched/engine_load.c \
	daemon/sched/engine.h \
	daemon/sched/engine_priv.h \
	daemon/sched/faults.c \
	daemon/sched/faults.h \
	daemon/sched/job.c \
	daemon/sched/job.h \
	daemon/sched/kvpool.c \
	daemon/sched/kvpool.h \
	daemon/sched/masks.c \
	daemon/sched/masks.h \
	daemon/sched/named.c \
	daemon/sched/named.h \
	daemon/sched/prefix.c \
	daemon/sched/prefix.h \
	daemon/sched/prefix_evict.c \
	daemon/sched/prefix_priv.h \
	daemon/sched/prep.c \
	daemon/sched/prep.h \
	daemon/sched/score.c \
	daemon/sched/score.h \
	daemon/sched/session.c \
	daemon/sched/session.h \
	daemon/sched/share.c \
	daemon/sched/share.h \
	daemon/sched/spec.c \
	daemon/sched/spec.h \
	daemon/sched/store.c \
	daemon/sched/store.h \
	daemon/sched/ticket.c \
	daemon/sched/ticket.h \
	daemon/sched/turns.c \
	daemon/sched/turns.h \
	daemon/sched/times.h
daemon_libsched_a_CPPFLAGS = $(DAEMON_CPPFLAGS) $(XXHASH_CFLAGS)

noinst_LIBRARIES += daemon/libnet.a
daemon_libnet_a_SOURCES = \
	daemon/net/account.c \
	daemon/net/account.h \
	daemon/net/conn.c \
	daemon/net/conn.h \
	daemon/net/farewell.c \
	daemon/net/farewell.h \
	daemon/net/flight.c \
	daemon/net/flight.h \
	daemon/net/listen.c \
	daemon/net/listen.h \
	daemon/net/metrics.c \
	daemon/net/ops.c \
	daemon/net/ops.h \
	daemon/net/peer.c \
	daemon/net/peer.h \
	daemon/net/reply.c \
	daemon/net/reply.h \
	daemon/net/request.c \
	daemon/net/request.h \
	daemon/net/server.c \
	daemon/net/server.h \
	daemon/net/status.c \
	daemon/net/status.h
daemon_libnet_a_CPPFLAGS = $(DAEMON_CPPFLAGS)

# What each layer needs to link, itself first. Programs (stepd, tests) take
# one of these; a test of a low layer never builds a higher one.
BASE_LIBS = daemon/libbase.a $(INIH_LIBS) $(SYSTEMD_LIBS) $(XXHASH_LIBS)
TEXT_LIBS = daemon/libtext.a $(JANSSON_LIBS) $(PCRE2_LIBS) $(BASE_LIBS) $(LIBM)
MODEL_LIBS = daemon/libmodel.a $(KERNELS_LIBS) $(JANSSON_LIBS) $(PCRE2_LIBS) \
	$(BASE_LIBS)
SCHED_LIBS = daemon/libsched.a daemon/libtext.a $(PCRE2_LIBS) $(MODEL_LIBS)
NET_LIBS = daemon/libnet.a client/libwire.la $(EV_LIBS) $(SCHED_LIBS)

sbin_PROGRAMS += daemon/stepd
daemon_stepd_SOURCES = \
	daemon/check.c \
	daemon/check.h \
	daemon/main.c \
	daemon/options.c \
	daemon/options.h \
	daemon/sandbox.c \
	daemon/sandbox.h \
	daemon/service.c \
	daemon/service.h
daemon_stepd_CPPFLAGS = $(DAEMON_CPPFLAGS)
daemon_stepd_LDADD = $(NET_LIBS)

EXTRA_DIST += daemon/stepd.8.scd
daemon/stepd.8.full: daemon/stepd.8.scd
	$(AM_V_GEN)cp $(srcdir)/daemon/stepd.8.scd $@
MANUALS += daemon/stepd.8
