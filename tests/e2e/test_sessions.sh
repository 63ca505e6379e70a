#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Named sessions over a real socket: append is the whole conversation, forks
# share, saved ones come back after a stop and after kill -9, and a file that is
# damaged in any way is named and refused.

. "$(dirname "$0")/functions.sh"
requires "$PYTHON3" -c 'import json'

state=$tmp/state
mkdir "$state"
export STATE_DIRECTORY=$state
floor=(--set session_disk_floor=0)

json()
{
    ctl chat --temperature 0 --seed 1 --max-tokens 120 --json "$@"
}
# field FILE PATH: of the done event.
field()
{
    "$PYTHON3" -c '
import json, sys
e = json.loads(open(sys.argv[1]).read().splitlines()[-1])
for k in sys.argv[2].split("."):
    e = e[k]
print(e)' "$1" "$2"
}
# answer FILE: all that was said, kind by kind, and the ids where asked.
answer()
{
    "$PYTHON3" -c '
import json, sys
said = {}
for line in open(sys.argv[1]):
    e = json.loads(line)
    if e["event"] == "delta":
        said[e["kind"]] = said.get(e["kind"], "") + e.get("text", "")
        said["ids"] = said.get("ids", []) + e.get("ids", [])
print(json.dumps(said))' "$1"
}
is()
{
    [ "$1" = "$2" ] || fail "found '$1', expected '$2'"
}
# session NAME KEY: what the list says of it.
session()
{
    ctl sessions list --json | "$PYTHON3" -c '
import json, sys
for line in sys.stdin:
    for s in json.loads(line).get("sessions", []):
        if s["name"] == sys.argv[1]:
            print(s[sys.argv[2]])' "$1" "$2"
}

start_stepd "${floor[@]}"

# ---- append is the whole conversation ------------------------------------------

json --session a --ids 'What is the capital of Kenya?' >"$tmp/a1"
is "$(field "$tmp/a1" usage.cached_tokens)" 0
json --session a --append --ids 'What is 7 plus 8?' >"$tmp/a2"
open=$(($(field "$tmp/a1" usage.prompt_tokens) - 2)) # without <think>\n
[ "$(field "$tmp/a2" usage.cached_tokens)" -ge "$open" ] ||
    fail "append: $(tail -1 "$tmp/a2")"
# ---- fork ------------------------------------------------------------------------

ctl sessions fork a b
is "$(session b tokens)" "$(session a tokens)"
json --session a --append --ids 'And 1 plus 2?' >"$tmp/a3"
json --session b --append --ids 'And 1 plus 2?' >"$tmp/b3"
is "$(answer "$tmp/a3")" "$(answer "$tmp/b3")"
expect_status 64 ctl sessions fork a b
expect_status 66 ctl sessions fork nobody c
expect_status 66 ctl chat --session nobody --append hi
expect_status 64 ctl chat --append hi

# ---- saved, stopped, found again ---------------------------------------------------

ctl sessions pin a
ctl sessions save b
is "$(session b saved)" True
stop_stepd
[ -s "$state/sessions/$(id -u)/a" ] || fail "the pinned session was not saved"
start_stepd "${floor[@]}"
is "$(session a pinned)" True
saved=$(session a tokens)
ctl sessions restore a b
# fr_60: what is restored is not computed again: all but the newest token.
is "$(session a cached_tokens)" $((saved - 1))
json --session a --append --ids 'And 3 plus 4?' >"$tmp/a4"
# Pinned still: the turn since is saved over what was there.
saved=$(session a tokens)
stop_stepd
start_stepd "${floor[@]}"
is "$(session a tokens)" "$saved"
ctl sessions restore a
is "$(session a cached_tokens)" $((saved - 1))
# A pin that is taken back does not come again.
ctl sessions unpin a
stop_stepd
start_stepd "${floor[@]}"
is "$(session a pinned)" False
is "$(session a tokens)" "$saved"
# Where the folder is gone it is not the session that is not found.
ctl sessions restore a
mv "$state/sessions" "$tmp/gone"
expect_status 70 ctl sessions save a
stop_stepd

# The same without ever having stopped.
start_stepd "${floor[@]}"
json --session a 'What is the capital of Kenya?' >"$tmp/x"
json --session a --append 'What is 7 plus 8?' >"$tmp/x"
json --session a --append 'And 1 plus 2?' >"$tmp/x"
json --session a --append --ids 'And 3 plus 4?' >"$tmp/x4"
is "$(answer "$tmp/x4")" "$(answer "$tmp/a4")"
is "$(field "$tmp/x4" usage.prompt_tokens)" "$(field "$tmp/a4" usage.prompt_tokens)"

# ---- kill -9 loses at most what was not saved ----------------------------------------

ctl sessions save a
kill -9 "$stepd_pid"
reap_stepd stepd 137
rm -f "$sock"
file=$state/sessions/$(id -u)/a
cp "$file" "$tmp/good"
: >"$state/sessions/$(id -u)/.a.new" # a save that died
start_stepd "${floor[@]}"
[ ! -e "$state/sessions/$(id -u)/.a.new" ] || fail "a dead save is still there"
ctl sessions restore a
stop_stepd

# ---- damage ----------------------------------------------------------------------------

# damaged WHAT WORDS: what a restore says of the file as it is now.
damaged()
{
    start_stepd "${floor[@]}"
    expect_status 65 ctl sessions restore a 2>"$tmp/err"
    grep -q "corrupt: .*$2" "$tmp/err" || fail "$1: $(cat "$tmp/err")"
    expect_status 65 ctl chat --session a --append hi 2>"$tmp/err"
    [ -e "$file" ] || fail "$1: the file is gone"
    ctl chat --temperature 0 --max-tokens 4 hi >"$tmp/out" # the rest goes on
    stop_stepd
    cp "$tmp/good" "$file"
}
size=$(stat -c %s "$tmp/good")
truncate -s $((size / 2)) "$file"
damaged 'a half file' 'bytes long, its header says'
printf 'x' | dd of="$file" bs=1 seek=$((size - 100)) conv=notrunc 2>/dev/null
damaged 'a flipped byte in the last page' 'is damaged: block .*a sliding page'
printf 'x' | dd of="$file" bs=1 seek=400 conv=notrunc 2>/dev/null
damaged 'a flipped byte in the ids' 'is damaged: block 0'
printf 'x' | dd of="$file" bs=1 seek=40 conv=notrunc 2>/dev/null
damaged 'a flipped byte in the header' "the header's checksum"
# Not damaged, but another model's, or of kernels whose last bits may differ.
cp -rL "$MODEL" "$tmp/other"
chmod -R u+w "$tmp/other"
echo >>"$tmp/other/config.json"
MODEL=$tmp/other damaged 'another model' 'another model: fingerprint'
if grep -q avx2 /proc/cpuinfo; then
    given=("${floor[@]}")
    floor+=(--set isa=portable)
    damaged 'other kernels' 'with the kernels of cpu avx.*those of cpu portable'
    floor=("${given[@]}")
fi
printf 'nonsense' >"$file"
damaged 'another file' 'ends too early'

# ---- no room -----------------------------------------------------------------------------

start_stepd --set session_disk_floor=1048576G
ctl sessions restore a
expect_status 71 ctl sessions save a 2>"$tmp/err"
grep -q 'must stay free' "$tmp/err" || fail "floor: $(cat "$tmp/err")"
is "$(cmp "$file" "$tmp/good" && echo same)" same
stop_stepd
start_stepd --set session_disk_per_owner=1000
ctl sessions restore a
expect_status 75 ctl sessions save a 2>"$tmp/err"
grep -q 'at most 1000' "$tmp/err" || fail "quota: $(cat "$tmp/err")"
ctl sessions drop a
[ ! -e "$file" ] || fail 'dropped, and still on disk'
expect_status 66 ctl sessions drop a
stop_stepd
unset STATE_DIRECTORY
start_stepd --set max_sessions_per_owner=1
json --session a hi >"$tmp/x"
expect_status 75 ctl chat --session b hi 2>"$tmp/err"
expect_status 69 ctl sessions save a 2>"$tmp/err"
grep -q state_dir "$tmp/err" || fail "no folder: $(cat "$tmp/err")"
stop_stepd
