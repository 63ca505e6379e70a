#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Long starts (fr_82, fr_84, fr_86): a load whose bytes move outlives any
# TimeoutStartSec=, a load that is stuck does not.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

# Slow: each read of a shard takes a second and a half, so the load outlasts the
# time limit.
slow=$builddir/tests/systemd/.libs/slow_read.so
[ -e "$slow" ] || skip "tests/systemd/slow_read.so was not built"
cp "$slow" /srv/slow_read.so
conf weights=copy
dropin stepd.service TimeoutStartSec=3 Environment=LD_PRELOAD=/srv/slow_read.so
systemctl start stepd.service
expect_prop ActiveState active
took=$(($(prop ActiveEnterTimestampMonotonic) - $(prop InactiveExitTimestampMonotonic)))
[ "$took" -gt 3000000 ] || fail "the load was not slow: $took us"
expect_prop NRestarts 0
systemctl stop stepd.service

# Stuck: no byte moves.
rm /etc/systemd/system/stepd.service.d/test.conf
dropin stepd.service TimeoutStartSec=2 Restart=no
conf test_hold_load=yes
expect_status 1 systemctl start stepd.service
expect_prop Result timeout
systemctl stop stepd.socket
expect_clean_run
