# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# client/: the protocol, the library and the command line.

# The protocol: linked into the daemon and into libstepclient, exported by
# neither.
noinst_LTLIBRARIES += client/libwire.la
client_libwire_la_SOURCES = \
	client/wire.c \
	client/wire.h \
	client/wire_check.c \
	client/wire_decode.c \
	client/wire_describe.c \
	client/wire_event.c \
	client/wire_json.c \
	client/wire_priv.h \
	client/wire_put.c \
	client/wire_table.c \
	client/wire_take.c
client_libwire_la_CPPFLAGS = $(AM_CPPFLAGS) $(MSGPACK_CFLAGS)
client_libwire_la_LIBADD = $(MSGPACK_LIBS)

lib_LTLIBRARIES += client/libstepclient.la
client_libstepclient_la_SOURCES = \
	client/client.c \
	client/client.h \
	client/client_event.c \
	client/client_io.c \
	client/client_priv.h \
	client/client_request.c
client_libstepclient_la_CPPFLAGS = $(AM_CPPFLAGS) \
	-DSTEPD_RUNDIR='"$(rundir)"'
client_libstepclient_la_LIBADD = client/libwire.la
client_libstepclient_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 \
	-Wl,--version-script=$(srcdir)/client/libstepclient.map
client_libstepclient_la_DEPENDENCIES = client/libwire.la \
	client/libstepclient.map
EXTRA_DIST += client/libstepclient.map

pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = client/stepclient.pc
client/stepclient.pc: client/stepclient.pc.in Makefile
	$(AM_V_GEN)$(MKDIR_P) client && $(SED) -e 's|@prefix[@]|$(prefix)|g' \
	    -e 's|@exec_prefix[@]|$(exec_prefix)|g' \
	    -e 's|@libdir[@]|$(libdir)|g' \
	    -e 's|@includedir[@]|$(includedir)|g' \
	    -e 's|@PACKAGE_VERSION[@]|$(PACKAGE_VERSION)|g' \
	    $(srcdir)/client/stepclient.pc.in >$@.tmp && mv $@.tmp $@
CLEANFILES += client/stepclient.pc
EXTRA_DIST += client/stepclient.pc.in

stepincludedir = $(includedir)/stepd
stepinclude_HEADERS = client/client.h

bin_PROGRAMS += client/stepctl
client_stepctl_SOURCES = \
	client/cli.c \
	client/cli.h \
	client/cli_bench.c \
	client/cli_calls.c \
	client/cli_cancel.c \
	client/cli_chat.c \
	client/cli_complete.c \
	client/cli_detokenize.c \
	client/cli_drain.c \
	client/cli_generate.c \
	client/cli_input.c \
	client/cli_line.c \
	client/cli_metrics.c \
	client/cli_options.c \
	client/cli_output.c \
	client/cli_ping.c \
	client/cli_reload.c \
	client/cli_sessions.c \
	client/cli_render.c \
	client/cli_repl.c \
	client/cli_run.c \
	client/cli_score.c \
	client/cli_status.c \
	client/cli_tokenize.c \
	client/cli_top.c
client_stepctl_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) $(EDIT_CFLAGS)
client_stepctl_LDADD = client/libstepclient.la $(JANSSON_LIBS) $(EDIT_LIBS)

# Examples: documentation, built so that they keep compiling, run by
# tests/e2e/test_examples.sh. They include <stepd/client.h> as their readers do.
exampledir = $(docdir)/examples
dist_example_DATA = client/example_blocking.c client/example_ev.c \
	client/example_poll.c
noinst_PROGRAMS += client/example_blocking client/example_ev client/example_poll
EXAMPLE_CPPFLAGS = -I$(top_builddir)/client/include
$(client_example_blocking_OBJECTS) $(client_example_ev_OBJECTS) \
$(client_example_poll_OBJECTS): client/include/stepd/client.h
client/include/stepd/client.h: client/client.h
	$(AM_V_GEN)$(MKDIR_P) client/include/stepd && \
	    cp $(srcdir)/client/client.h $@
CLEANFILES += client/include/stepd/client.h
client_example_blocking_CPPFLAGS = $(EXAMPLE_CPPFLAGS)
client_example_blocking_LDADD = client/libstepclient.la
client_example_ev_CPPFLAGS = $(EXAMPLE_CPPFLAGS)
client_example_ev_LDADD = client/libstepclient.la $(EV_LIBS)
client_example_poll_CPPFLAGS = $(EXAMPLE_CPPFLAGS)
client_example_poll_LDADD = client/libstepclient.la

# ---- manual and completion: filled from --help and the protocol's tables -----

noinst_PROGRAMS += client/mantables
client_mantables_SOURCES = client/mantables.c
client_mantables_CPPFLAGS = $(AM_CPPFLAGS) $(MSGPACK_CFLAGS)
client_mantables_LDADD = client/libwire.la

EXTRA_DIST += client/stepctl.1.scd client/libstepclient.3.scd \
	client/stepd-protocol.7.scd client/help2scd.awk client/completion.sh

client/commands.tmp: client/stepctl client/help2scd.awk
	$(AM_V_GEN)for c in $$(client/stepctl --help | \
	    $(AWK) '/^  [a-z]/ {print $$1}'); do \
	    client/stepctl $$c --help; \
	done | $(AWK) -f $(srcdir)/client/help2scd.awk >$@
client/stepctl.1.full: client/stepctl.1.scd client/commands.tmp
	$(AM_V_GEN)$(SED) -e '/^@COMMANDS@$$/{r client/commands.tmp' -e 'd;}' \
	    $(srcdir)/client/stepctl.1.scd >$@
client/libstepclient.3.full: client/libstepclient.3.scd
	$(AM_V_GEN)cp $(srcdir)/client/libstepclient.3.scd $@
client/stepd-protocol.7.full: client/stepd-protocol.7.scd client/mantables
	$(AM_V_GEN)for s in ops keys events codes limits; do \
	    client/mantables $$s >client/$$s.tmp || exit 1; \
	done && $(SED) -e '/^@OPS@$$/{r client/ops.tmp' -e 'd;}' \
	    -e '/^@KEYS@$$/{r client/keys.tmp' -e 'd;}' \
	    -e '/^@EVENTS@$$/{r client/events.tmp' -e 'd;}' \
	    -e '/^@CODES@$$/{r client/codes.tmp' -e 'd;}' \
	    -e '/^@LIMITS@$$/{r client/limits.tmp' -e 'd;}' \
	    $(srcdir)/client/stepd-protocol.7.scd >$@
CLEANFILES += client/commands.tmp client/ops.tmp client/keys.tmp \
	client/events.tmp client/codes.tmp client/limits.tmp

client/stepctl.bash: client/completion.sh client/stepctl client/mantables
	$(AM_V_GEN)sh $(srcdir)/client/completion.sh client/stepctl \
	    client/mantables >$@.tmp && mv $@.tmp $@
CLEANFILES += client/stepctl.bash
noinst_DATA += client/stepctl.bash

MANUALS = client/stepctl.1 client/libstepclient.3 client/stepd-protocol.7
