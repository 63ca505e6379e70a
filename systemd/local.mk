# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# sysusers and tmpfiles are installed as stepd.conf in their folders.

systemd/stepd.service: systemd/stepd.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && $(SED) -e 's|@sbindir[@]|$(sbindir)|g' \
	    -e 's|@confdir[@]|$(confdir)|g' \
	    $(srcdir)/systemd/stepd.service.in >$@.tmp && mv $@.tmp $@
CLEANFILES += systemd/stepd.service
EXTRA_DIST += systemd/stepd.service.in systemd/stepd.socket \
	systemd/stepd.sysusers systemd/stepd.tmpfiles

if INSTALL_UNITS
unitdir = $(systemdsystemunitdir)
unit_DATA = systemd/stepd.service systemd/stepd.socket
endif

install-data-local:
if INSTALL_SYSUSERS
	$(MKDIR_P) '$(DESTDIR)$(sysusersdir)'
	$(INSTALL_DATA) $(srcdir)/systemd/stepd.sysusers \
	    '$(DESTDIR)$(sysusersdir)/stepd.conf'
endif
if INSTALL_TMPFILES
	$(MKDIR_P) '$(DESTDIR)$(tmpfilesdir)'
	$(INSTALL_DATA) $(srcdir)/systemd/stepd.tmpfiles \
	    '$(DESTDIR)$(tmpfilesdir)/stepd.conf'
endif

uninstall-local:
if INSTALL_SYSUSERS
	rm -f '$(DESTDIR)$(sysusersdir)/stepd.conf'
endif
if INSTALL_TMPFILES
	rm -f '$(DESTDIR)$(tmpfilesdir)/stepd.conf'
endif
