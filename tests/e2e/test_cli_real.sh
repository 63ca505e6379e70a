#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Every command of stepctl against the real daemon on step-tiny, as a person or
# a script uses it; the answers must be right, not only there.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

kenya='What is the capital of Kenya?'

# check STATUS COMMAND...: runs it, stdout to $tmp/out, stderr to $tmp/err.
check()
{
    local want=$1 got=0

    shift
    "$@" >"$tmp/out" 2>"$tmp/err" || got=$?
    [ "$got" -eq "$want" ] ||
        fail "exit status $got instead of $want: $* ($(cat "$tmp/err"))"
}

# out_is TEXT: stdout, byte for byte, TEXT as printf's %b; stderr is empty.
out_is()
{
    printf '%b' "$1" | cmp -s - "$tmp/out" ||
        fail "'$(cat "$tmp/out")' instead of '$1'"
    [ ! -s "$tmp/err" ] || fail "stderr: $(cat "$tmp/err")"
}

# says WORDS: stdout holds them.
says()
{
    grep -qF -e "$1" "$tmp/out" || fail "no '$1' in: $(cat "$tmp/out")"
}

# json PYTHON: true of e, the list of the objects in $tmp/out, one a line.
json()
{
    py "$tmp/out" "$1" <<'END' || fail "not so: $1"
import json
import sys
with open(sys.argv[1], encoding="utf-8") as f:
    e = [json.loads(line) for line in f]
kinds = [x.get("kind") for x in e if x.get("event") == "delta"]
text = "".join(x.get("text", "") for x in e if x.get("kind") == "content")
sys.exit(0 if eval(sys.argv[2]) else print(e) or 1)
END
}

start_stepd

# ---- ping, status ------------------------------------------------------------

check 0 ctl ping
check 0 ctl ping --wait 60 --json
json 'e[-1]["state"] == "ready"'
check 0 ctl status
says ready
check 0 ctl status --json
json 'len(e) == 1 and e[0]["state"] == "ready"'

# ---- chat ---------------------------------------------------------------------

check 0 ctl chat --temperature 0 "$kenya"
out_is 'The capital of Kenya is Nairobi.\n'
check 0 ctl chat --temperature 0 --system 'You answer in one short sentence.' \
    'What is 7 plus 8?'
out_is '7 plus 8 is 15.\n'
check 0 ctl chat --temperature 0 'What does the command grep do?'
says 'prints the lines'

# Thinking: reasoning first, shown where it is wanted.
check 0 ctl chat --temperature 0 --show-reasoning "$kenya"
says 'The user asks for the capital of Kenya.'
[ "$(tail -n 1 "$tmp/out")" = 'The capital of Kenya is Nairobi.' ] ||
    fail "the answer is not last: $(cat "$tmp/out")"
check 0 ctl chat --temperature 0 --json "$kenya"
json 'kinds[0] == "reasoning" and kinds[-1] == "content"'
json '"Nairobi" in text and e[-1]["finish_reason"] == "stop"'

# Without: content at once, and no reasoning at all.
check 0 ctl chat --temperature 0 --no-thinking --json "$kenya"
json 'set(kinds) == {"content"} and "Nairobi" in text'
check 0 ctl chat --temperature 0 --no-thinking --show-reasoning "$kenya"
out_is 'The capital of Kenya is Nairobi.\n'

# ---- where prompts come from ------------------------------------------------------

echo "$kenya" >"$tmp/question"
check 0 ctl chat --temperature 0 <"$tmp/question"
says Nairobi
check 0 ctl chat --temperature 0 - <"$tmp/question"
says Nairobi
check 0 ctl chat --temperature 0 --file "$tmp/question"
says Nairobi

# With a prompt stdin is left alone, so the loop sees every line.
printf '%s\n' "$kenya" 'What is 7 plus 8?' |
    while read -r question; do
        ctl chat --temperature 0 "$question"
    done >"$tmp/out"
[ "$(wc -l <"$tmp/out")" -eq 2 ] || fail "the loop: $(cat "$tmp/out")"
says Nairobi
says 15

# A reader that goes away: silence, and the daemon serves on.
set +o pipefail
ctl chat --temperature 0 --show-reasoning "$kenya" 2>"$tmp/err" |
    head -n 1 >"$tmp/out"
set -o pipefail
says Kenya
[ ! -s "$tmp/err" ] || fail "| head: $(cat "$tmp/err")"

# ---- tokenize, detokenize, render ----------------------------------------------------

text='The capital of Kenya, 7 + 8 = 15; na\xc3\xafve \xf0\x9f\x98\x80  \n x'
printf '%b' "$text" >"$tmp/text"
check 0 ctl tokenize <"$tmp/text"
read -ra ids <"$tmp/out"
[ "${#ids[@]}" -gt 5 ] || fail "few ids: ${ids[*]}"
check 0 ctl tokenize --json <"$tmp/text"
json '[i for x in e for i in x.get("ids", [])] == ['"$(
    IFS=,
    echo "${ids[*]}"
)]"
check 0 ctl detokenize "${ids[@]}"
cmp -s "$tmp/text" <(head -c "$(wc -c <"$tmp/text")" "$tmp/out") ||
    fail "the round trip: $(cat "$tmp/out")"

echo '{"messages": [{"role": "user", "content": "'"$kenya"'"}]}' \
    >"$tmp/messages.json"
check 0 ctl render "$tmp/messages.json"
says "$kenya"
says '<|im_start|>assistant'
check 0 ctl render --ids "$tmp/messages.json"
read -ra prompt <"$tmp/out"
[ "${prompt[0]}" -ne "${prompt[1]}" ] || fail "BOS twice: ${prompt[*]}"

# ---- complete, and ids -----------------------------------------------------------------

# What render shows is what chat asks: completed, it gives the same answer.
ctl render "$tmp/messages.json" >"$tmp/prompt"
check 0 ctl complete --temperature 0 --file "$tmp/prompt"
says 'It is Nairobi.'
check 0 ctl complete --temperature 0 --ids <"$tmp/prompt"
read -ra ids <"$tmp/out"
check 0 ctl detokenize "${ids[@]}"
says 'It is Nairobi.'
check 0 ctl complete --temperature 0 --max-tokens 3 --json 'The capital of'
json 'e[-1]["finish_reason"] == "length"'
json 'e[-1]["usage"]["completion_tokens"] == 3'

stop_stepd

# ---- cancel, from a second process ----------------------------------------------------

# The first step waits, so the job runs until it is cancelled.
start_stepd -n held --set test_hold_steps=yes
rm -f "$tmp/out" # "accepted" stands in it already
ctl complete --json --max-tokens 3000 'Once upon a time' >"$tmp/out" \
    2>"$tmp/err" &
running=$!
wait_for_line "$tmp/out" '"accepted"'
job=$(sed -n '/"job": *[0-9]/{s/.*"job": *\([0-9]*\).*/\1/p;q}' "$tmp/out")
[ -n "$job" ] || fail "no job in: $(cat "$tmp/out")"
ctl cancel "$job"
expect_status 75 wait "$running"
json 'e[-1]["finish_reason"] == "cancelled"'
expect_status 66 ctl cancel 999999 2>"$tmp/err"
stop_stepd held
