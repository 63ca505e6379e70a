# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Build tool: what `stepctl COMMAND --help` prints, of every command one after
# the other, as the COMMANDS section of stepctl(1).

function escaped(s)
{
	gsub(/[\\*_<>\[\]#]/, "\\\\&", s)
	sub(/^-/, "\\-", s)
	return s
}

/^Usage: stepctl / {
	sub(/^Usage: stepctl /, "")
	name = $1
	sub(/ \[OPTION\]\.\.\./, "")
	printf "\n## %s\n\n", $0
	next
}
/^Not in this version/ {
	later = 1
	next
}
/^  -/ {
	# "  --name ARG     words": the words begin after two blanks or more.
	line = substr($0, 3)
	at = match(line, /  +/)
	if (length(line) > 26 && (at == 0 || at > 27)) {
		at = 27
		RLENGTH = 0
	}
	left = substr(line, 1, at - 1)
	right = substr(line, at)
	sub(/^ +/, "", right)
	n = split(left, word, " ")
	if (word[1] == "-s")
		next
	arg = (n > 1) ? " " escaped(word[2]) : ""
	printf "*%s*%s\n\t%s\n\n", word[1], arg, escaped(right)
	next
}
/^$/ {
	if (later)
		print "\nNot in this version."
	later = 0
	print
	next
}
{
	if (first != name) {
		first = name
		$0 = toupper(substr($0, 1, 1)) substr($0, 2)
	}
	print escaped($0)
}
