# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors

confdir = $(sysconfdir)/stepd
dist_conf_DATA = etc/stepd.conf

EXTRA_DIST += etc/stepd.conf.5.scd etc/conf2scd.awk
etc/stepd.conf.5.full: etc/stepd.conf.5.scd etc/stepd.conf etc/conf2scd.awk
	$(AM_V_GEN)$(MKDIR_P) etc && $(AWK) -f $(srcdir)/etc/conf2scd.awk \
	    $(srcdir)/etc/stepd.conf >etc/keys.tmp && \
	$(SED) -e '/^@KEYS@$$/{r etc/keys.tmp' -e 'd;}' \
	    $(srcdir)/etc/stepd.conf.5.scd >$@
CLEANFILES += etc/keys.tmp
MANUALS += etc/stepd.conf.5

# ---- all manuals: PAGE.full is the scdoc text with nothing left to fill in -----

SUFFIXES += .full
MANUALS_FULL = $(MANUALS:=.full)
CLEANFILES += $(MANUALS_FULL)
noinst_DATA += $(MANUALS_FULL)
if HAVE_SCDOC
.full:
	$(AM_V_GEN)$(SCDOC) <$< >$@.tmp && mv $@.tmp $@
man_MANS += $(MANUALS)
CLEANFILES += $(MANUALS)
endif
