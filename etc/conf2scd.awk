# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Build tool: etc/stepd.conf, which documents every key, as the KEYS section of
# stepd.conf(5). A comment and the "#key = default" below it become one entry.

function escaped(s)
{
	gsub(/[\\*_<>\[\]#]/, "\\\\&", s)
	sub(/^-/, "\\-", s)
	return s
}

/^# ---- / {
	line = $0
	sub(/^# ---- /, "", line)
	sub(/ -+$/, "", line)
	printf "\n## %s\n\n", toupper(line)
	keys = 1
	text = ""
	next
}
!keys {
	next
}
/^# / {
	text = text "\t" escaped(substr($0, 3)) "\n"
	next
}
/^#[a-z]/ {
	name = $1
	value = $0
	sub(/^#/, "", name)
	sub(/^#[^=]*= ?/, "", value)
	printf "*%s* = %s\n%s\n", escaped(name), \
		value == "" ? "(empty)" : escaped(value), text
	text = ""
}
