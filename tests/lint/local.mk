# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

dist_check_SCRIPTS += \
	tests/lint/check_abi.sh \
	tests/lint/check_dist.sh \
	tests/lint/check_format.sh \
	tests/lint/check_layers.sh \
	tests/lint/check_shell.sh \
	tests/lint/check_size.sh \
	tests/lint/check_skips.sh \
	tests/lint/check_symbols.sh

EXTRA_DIST += tests/lint/libstepclient.abi

# What the tarball would hold, for check_dist.sh.
print-dist:
	@printf '%s\n' $(DISTFILES) | $(SED) -e 's|^$(srcdir)/||' \
	    -e 's|^$(top_srcdir)/||' -e 's|^\./||'
.PHONY: print-dist
