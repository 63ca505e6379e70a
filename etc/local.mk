# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

confdir = $(sysconfdir)/stepd
dist_conf_DATA = etc/stepd.conf
