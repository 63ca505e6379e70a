# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The service and its instances are one file, and so are the two sockets: what
# is different is filled in here. sysusers and tmpfiles are installed as
# stepd.conf in their folders, the completion under the command's name.

UNIT_EDIT = $(SED) -e 's|@sbindir[@]|$(sbindir)|g' -e 's|@bindir[@]|$(bindir)|g' \
	-e '$(unit_backoff)'
UNIT_ONE = -e 's|@kind[@]|The one service of a host|' -e 's|@unit[@]|stepd.service|g' \
	-e 's|@description[@]||' -e 's|@socketunit[@]|stepd.socket|g' \
	-e 's|@conf[@]|$(confdir)/stepd.conf|' -e 's|@state[@]|stepd|' \
	-e 's|@socket[@]|$(rundir)/stepd.sock|'
UNIT_MANY = -e 's|@kind[@]|One instance (NAME.conf, NAME.sock)|' \
	-e 's|@unit[@]|stepd@NAME.service|g' -e 's|@description[@]| (%i)|' \
	-e 's|@socketunit[@]|stepd@%i.socket|g' \
	-e 's|@conf[@]|$(confdir)/%i.conf|' -e 's|@state[@]|stepd/%i|' \
	-e 's|@socket[@]|$(rundir)/%i.sock|'

systemd/stepd.service: systemd/stepd.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && $(UNIT_EDIT) $(UNIT_ONE) \
	    $(srcdir)/systemd/stepd.service.in >$@.tmp && mv $@.tmp $@
systemd/stepd@.service: systemd/stepd.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && $(UNIT_EDIT) $(UNIT_MANY) \
	    $(srcdir)/systemd/stepd.service.in >$@.tmp && mv $@.tmp $@
systemd/stepd.socket: systemd/stepd.socket.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && $(UNIT_EDIT) $(UNIT_ONE) \
	    $(srcdir)/systemd/stepd.socket.in >$@.tmp && mv $@.tmp $@
systemd/stepd@.socket: systemd/stepd.socket.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && $(UNIT_EDIT) $(UNIT_MANY) \
	    $(srcdir)/systemd/stepd.socket.in >$@.tmp && mv $@.tmp $@
systemd/user/stepd.service: systemd/user/stepd.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd/user && $(UNIT_EDIT) \
	    $(srcdir)/systemd/user/stepd.service.in >$@.tmp && mv $@.tmp $@

systemd/stepd-metrics@.service: systemd/stepd-metrics@.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) systemd && $(UNIT_EDIT) $(UNIT_ONE) \
	    $(srcdir)/systemd/stepd-metrics@.service.in >$@.tmp && mv $@.tmp $@

UNITS = systemd/stepd.service systemd/stepd@.service systemd/stepd.socket \
	systemd/stepd@.socket systemd/stepd-metrics@.service
CLEANFILES += $(UNITS) systemd/user/stepd.service
EXTRA_DIST += systemd/stepd.service.in systemd/stepd.socket.in \
	systemd/stepd-metrics.socket systemd/stepd-metrics@.service.in \
	systemd/stepd.sysusers systemd/stepd.tmpfiles \
	systemd/user/stepd.service.in systemd/user/stepd.socket \
	systemd/cuda/10-nvidia.conf systemd/cuda/20-multi-gpu.conf \
	systemd/cuda/stepd-nvidia.service

if INSTALL_UNITS
unitdir = $(systemdsystemunitdir)
unit_DATA = $(UNITS) systemd/stepd-metrics.socket
if WITH_CUDA
unit_DATA += systemd/cuda/stepd-nvidia.service
dropindir = $(systemdsystemunitdir)/stepd.service.d
dropin_DATA = systemd/cuda/10-nvidia.conf
endif
endif
if INSTALL_USER_UNITS
userunitdir = $(systemduserunitdir)
userunit_DATA = systemd/user/stepd.service systemd/user/stepd.socket
endif

install-data-local:
if INSTALL_COMPLETION
	$(MKDIR_P) '$(DESTDIR)$(bashcompletiondir)'
	$(INSTALL_DATA) client/stepctl.bash \
	    '$(DESTDIR)$(bashcompletiondir)/stepctl'
endif
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
if INSTALL_COMPLETION
	rm -f '$(DESTDIR)$(bashcompletiondir)/stepctl'
endif
if INSTALL_SYSUSERS
	rm -f '$(DESTDIR)$(sysusersdir)/stepd.conf'
endif
if INSTALL_TMPFILES
	rm -f '$(DESTDIR)$(tmpfilesdir)/stepd.conf'
endif

# ---- Debian packages: make deb leaves them in deb/ -----------------------------

DEBIAN = changelog control copyright libstepclient-dev.install \
	libstepclient0.install libstepclient0.symbols not-installed rules \
	source/format stepctl.install stepd-cuda.examples stepd-cuda.install \
	stepd-cuda.postinst stepd-cuda.postrm \
	stepd.install stepd.postinst stepd.postrm stepd.prerm
EXTRA_DIST += $(DEBIAN:%=systemd/debian/%)
if WITH_CUDA
DEB_PROFILES = --build-profiles=pkg.stepd.cuda
endif

# The tree of `make dist`, without the minutes that packing it takes.
deb:
	rm -rf deb $(distdir) && $(MKDIR_P) deb
	$(MAKE) $(AM_MAKEFLAGS) distdir && mv $(distdir) deb/
	cd deb && cp -r $(distdir)/systemd/debian $(distdir)/debian && \
	cd $(distdir) && chmod 755 debian/rules && \
	DEB_BUILD_OPTIONS="parallel=$$(nproc) $$DEB_BUILD_OPTIONS" \
	    dpkg-buildpackage -b -us -uc $(DEB_PROFILES)
	rm -rf deb/$(distdir) && ls deb/*.deb
.PHONY: deb

clean-deb:
	rm -rf deb
.PHONY: clean-deb
