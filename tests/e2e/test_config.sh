#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# What an operator does before and around a start: configuration that is wrong
# stops it with file, line and what is allowed (78); stepd --check tells the plan
# and every problem and ends as the start would; --version says what was built.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

# run STATUS COMMAND...: output of both kinds in $tmp/out.
run()
{
    expect_status "$@" >"$tmp/out" 2>&1
}

# said REGEX: the last run must have said so.
said()
{
    grep -Eq -- "$1" "$tmp/out" ||
        fail "not said: $1; but: $(cat "$tmp/out")"
}

# ---- configuration
cat >"$tmp/bad.conf" <<'END'
# a comment
model = /nowhere
thread = 3
backend = gpu

max_in_flight = 65
END
mkdir "$tmp/bad.conf.d"
echo 'log_level = loud' >"$tmp/bad.conf.d/50-log.conf"
run 78 "$STEPD" --config "$tmp/bad.conf" --set drafts=9
said "bad\.conf:3: unknown key 'thread'"
said 'bad\.conf:4: backend = gpu: expected one of auto, cpu, cuda'
said 'bad\.conf:6: max_in_flight = 65: expected a whole number, 1 to 64'
said 'bad\.conf\.d/50-log\.conf:1: log_level = loud: expected one of error,'
said '--set: drafts = 9: expected one of'
said 'the keys are: model, '
# --check ends as the start would.
run 78 "$STEPD" --check --config "$tmp/bad.conf"
said "unknown key 'thread'"

: >"$tmp/empty.conf"
run 78 "$STEPD" --config "$tmp/empty.conf"
said 'no model'
run 78 "$STEPD" --config "$tmp/nowhere.conf" --model "$MODEL"
said 'nowhere\.conf: No such file or directory'
run 64 "$STEPD" --modle "$MODEL"
said 'usage: stepd'
run 64 "$STEPD" "$MODEL"
said "unknown argument"

# Later wins: the file, the folder, --set, in this order.
echo 'served_model_name = from-the-file' >"$tmp/order.conf"
mkdir "$tmp/order.conf.d"
start_stepd -n order
[ "$(ctl status | awk '$1 == "served_model_name" { print $2 }')" = \
    from-the-file ] || fail "the file does not count"
stop_stepd order
echo 'served_model_name = from-the-folder' >"$tmp/order.conf.d/a.conf"
start_stepd -n order
[ "$(ctl status | awk '$1 == "served_model_name" { print $2 }')" = \
    from-the-folder ] || fail "the folder does not count"
stop_stepd order
start_stepd -n order --set served_model_name=from-the-line
[ "$(ctl status | awk '$1 == "served_model_name" { print $2 }')" = \
    from-the-line ] || fail "--set does not count"
stop_stepd order

# ---- --check
run 0 "$STEPD" --check --model "$MODEL" --config "$tmp/empty.conf"
said 'memory plan:'
said 'weights, experts +[0-9]+ bytes'
said 'longest sequence: 4096 tokens'
said 'a start would serve'
run 65 "$STEPD" --check --model /nowhere --config "$tmp/empty.conf"
said 'problem: .*/nowhere.*No such file or directory'
cp -r "$MODEL" "$tmp/cut"
chmod -R u+w "$tmp/cut"
truncate -s -100 "$tmp/cut/model-00002.safetensors"
echo '{"model": 1}' >"$tmp/cut/tokenizer.json"
run 65 "$STEPD" --check --model "$tmp/cut" --config "$tmp/empty.conf"
said 'problem: .*model-00002\.safetensors'
said 'a start would end with status 65'
# and so the start ends
launch_stepd -n cut --model "$tmp/cut"
reap_stepd cut 65
grep -q 'model-00002\.safetensors' "$tmp/cut.log" ||
    fail "the start does not name the shard"
cp "$MODEL/model-00002.safetensors" "$tmp/cut"
run 65 "$STEPD" --check --model "$tmp/cut" --config "$tmp/empty.conf"
said 'problem: tokenizer: '
# A check ends as the start does where there is nothing to compute with.
for wish in backend=cuda isa=avx512bf16 isa=avx512 isa=avx2 isa=neonbf16; do
    got=0
    "$STEPD" --check --model "$MODEL" --config "$tmp/empty.conf" \
        --set "$wish" >"$tmp/wish.out" 2>&1 || got=$?
    [ "$got" -ne 0 ] || continue # it is there
    [ "$got" -eq 69 ] || fail "$wish: status $got"
    grep -q "^problem: ${wish%=*}: .* ${wish#*=}" "$tmp/wish.out" ||
        fail "$wish: $(cat "$tmp/wish.out")"
    launch_stepd -n wish --set "$wish"
    reap_stepd wish 69
    grep -q "${wish%=*}: .* ${wish#*=}" "$tmp/wish.log" ||
        fail "$wish: $(cat "$tmp/wish.log")"
done
# What the configuration asks for is the configuration's fault.
run 78 "$STEPD" --check --model "$MODEL" --config "$tmp/empty.conf" \
    --set kv_memory=1M
said 'problem: kv_memory: expected at least [0-9]+ bytes .*, found 1048576'
# fr_92: a byte less than that is one error and the end; with that it serves.
least=$(sed -En 's/^problem: kv_memory: expected at least ([0-9]+) .*/\1/p' \
    "$tmp/out")
launch_stepd -n less --set kv_memory=$((least - 1))
reap_stepd less 78
[ "$(grep ' error: ' "$tmp/less.log" | grep -vc 'giving up')" -eq 1 ] ||
    fail "one error, please: $(cat "$tmp/less.log")"
start_stepd -n least --set kv_memory="$least"
run 0 ctl complete --max-tokens 2 word
stop_stepd least
# Nothing was left by any of them, and a check runs beside a daemon.
start_stepd
run 0 "$STEPD" --check --model "$MODEL" --config "$tmp/empty.conf" \
    --socket "$sock"
[ "$(ctl ping)" = ready ] || fail "the check disturbed the daemon"

# ---- the process: offered to the OOM killer (field report 91), not dumpable
[ "$(cat "/proc/$stepd_pid/oom_score_adj")" -ge 500 ] ||
    fail "oom_score_adj is not raised"
if [ "$(id -u)" -ne 0 ]; then
    ! cat "/proc/$stepd_pid/maps" >/dev/null 2>&1 ||
        fail "its own user can look into the process"
fi

# ---- reload: by signal and by command; what cannot change live is refused
echo 'log_level = debug' >"$tmp/stepd.conf"
kill -HUP "$stepd_pid"
wait_for_line "$tmp/stepd.log" 'reload: changed: log_level'
echo 'served_model_name = x' >"$tmp/stepd.conf"
run 0 ctl reload
said '^served_model_name$'
said '^log_level$'
[ "$(ctl status | sed -n 's/^served_model_name *//p')" = x ] || fail "the name"
echo 'max_queue = 5' >"$tmp/stepd.conf"
run 69 ctl reload
said 'stepd.conf:1: max_queue cannot change while the daemon runs'
echo 'max_queue' >"$tmp/stepd.conf"
run 64 ctl reload
said 'stepd.conf:1: .max_queue. is not KEY = VALUE'
[ "$(ctl status | sed -n 's/^served_model_name *//p')" = x ] || fail "was changed"
: >"$tmp/stepd.conf"
[ "$(ctl ping)" = ready ] || fail "SIGHUP stopped the daemon"
stop_stepd

# ---- fr_91: a context that cannot fit is refused before anything is touched
run 78 "$STEPD" --check --model "$MODEL" --config "$tmp/empty.conf" \
    --set max_model_len=1000000
said 'problem: max_model_len: expected at most'
said 'memory plan:'
said 'a start would end with status 78'
launch_stepd -n huge --set max_model_len=1000000
reap_stepd huge 78

# ---- one user's share of the KV cache: 4 pages of 64 tokens here
start_stepd -n share --set kv_share_per_owner=0.001
run 65 ctl complete "$(printf 'word %.0s' {1..600})"
said 'too_long: .* one user may hold [0-9]+ of [0-9]+ \(kv_share_per_owner\)'
run 0 ctl complete --max-tokens 2 word
stop_stepd share

# ---- --version
run 0 "$STEPD" --version
said '^stepd [0-9]+\.[0-9]+'
said 'CPU paths'
