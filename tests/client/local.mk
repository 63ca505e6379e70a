# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

noinst_HEADERS += tests/client/count_malloc.h tests/client/frames.h \
	tests/client/played_daemon.h

# ---- the protocol: client/wire*.c ----
check_PROGRAMS += tests/client/test_wire_check
tests_client_test_wire_check_LDADD = client/libwire.la $(TEST_LIBS)
check_PROGRAMS += tests/client/test_wire_decode
tests_client_test_wire_decode_CPPFLAGS = $(AM_CPPFLAGS) $(MSGPACK_CFLAGS)
tests_client_test_wire_decode_LDADD = client/libwire.la $(TEST_LIBS)
check_PROGRAMS += tests/client/test_wire_json
tests_client_test_wire_json_CPPFLAGS = $(AM_CPPFLAGS) $(MSGPACK_CFLAGS)
tests_client_test_wire_json_LDADD = client/libwire.la $(MSGPACK_LIBS) \
	$(TEST_LIBS)
check_PROGRAMS += tests/client/test_wire_put
tests_client_test_wire_put_CPPFLAGS = $(AM_CPPFLAGS) $(MSGPACK_CFLAGS)
tests_client_test_wire_put_LDADD = client/libwire.la $(TEST_LIBS)

# ---- stepctl ----
EXTRA_DIST += tests/client/fake_stepd.py tests/e2e/client.py
dist_check_SCRIPTS += tests/client/test_cli.sh \
	tests/client/test_manuals.sh \
	tests/client/test_cli_denied.sh \
	tests/client/test_repl.py

# ---- libstepclient ----
check_PROGRAMS += tests/client/test_client
tests_client_test_client_LDADD = client/libstepclient.la client/libwire.la \
	$(TEST_LIBS)
check_PROGRAMS += tests/client/test_client_fail
tests_client_test_client_fail_LDADD = client/libstepclient.la \
	client/libwire.la $(TEST_LIBS) $(DL_LIBS)
check_PROGRAMS += tests/client/test_client_io
tests_client_test_client_io_LDADD = client/libstepclient.la client/libwire.la \
	$(TEST_LIBS)
check_PROGRAMS += tests/client/test_client_request
tests_client_test_client_request_LDADD = client/libstepclient.la \
	client/libwire.la $(TEST_LIBS)
TEST_THREADS += tests/client/test_client
