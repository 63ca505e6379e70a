# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

# tests_client_test_wire_LDADD = client/libwire.la $(TEST_LIBS)
# (a test that includes msgpack.h also sets tests_client_test_X_CPPFLAGS =
# $(AM_CPPFLAGS) $(MSGPACK_CFLAGS))
