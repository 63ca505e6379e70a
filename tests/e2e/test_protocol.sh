#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The protocol's rules, put to the daemon by a client that shares no code with
# it (client.py).

# shellcheck disable=SC2119 # functions with arguments, called without
# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

PYTHON3=/usr/bin/python3
requires "$PYTHON3" -c 'import msgpack'
start_stepd
"$PYTHON3" "$srcdir/tests/e2e/client.py" "$sock" || fail "a rule was broken"
stop_stepd
