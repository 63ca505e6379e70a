#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The whole daemon over the CUDA backend, real processes and a real socket:
# emulated, or with STEPD_TEST_BACKEND=cuda on a device (make check-gpu). Its
# greedy answers are the CPU's; a drawn one is the same to the bit alone, in
# company and with drafts; a mask reaches the sampler; a session goes on.

# shellcheck source-path=SCRIPTDIR source=../e2e/functions.sh
. "$(dirname "$0")/../e2e/functions.sh"

backend=${STEPD_TEST_BACKEND-cuda-emulated}
case $backend in
cuda) export STEPD_PLUGIN_DIR=$builddir/kernels/cuda ;;
*) export STEPD_PLUGIN_DIR=$builddir/tests/cuemu/plain STEPD_CUEMU=mem=512 ;;
esac
[ -e "$STEPD_PLUGIN_DIR/stepd-$backend.so" ] ||
    skip "no plugin stepd-$backend.so in this build"

start_stepd -n cpu --backend cpu
cpu=$sock
start_stepd -n gpu --backend "$backend"
ctl status --json >"$tmp/status"
has -F "\"device\": \"$backend" <"$tmp/status" || {
    cat "$tmp/status"
    fail "another device answers"
}

"$STEPCTL" -s "$cpu" chat --temperature 0 'What is 7 plus 8?' >"$tmp/want"
for drafts in 0 3; do
    ctl chat --temperature 0 --drafts "$drafts" 'What is 7 plus 8?' >"$tmp/got"
    diff "$tmp/want" "$tmp/got" || fail "an answer with $drafts drafts"
done

# drawn NAME [ARG...]: ids and logprobs of one answer, without times.
drawn()
{
    ctl complete --json --ids --seed 7 --temperature 0.9 --top-p 0.95 \
        --repetition-penalty 1.1 --logprobs 2 --max-tokens 24 "${@:2}" \
        'The capital of' >"$tmp/$1.all"
    grep -o '{"id": [0-9]*, "logprob": [-+.0-9e]*' "$tmp/$1.all" >"$tmp/$1" ||
        fail "no logprobs in the answer: $(cat "$tmp/$1.all")"
}
drawn alone
drawn drafts --drafts 3
ctl complete --seed 1 --max-tokens 24 'Two and' >"$tmp/other.1" &
other=($!)
ctl complete --seed 2 --max-tokens 24 'The command' >"$tmp/other.2" &
other+=($!)
drawn company --drafts 0
wait "${other[@]}"
diff "$tmp/alone" "$tmp/drafts" || fail 'drafts change a drawn answer'
diff "$tmp/alone" "$tmp/company" || fail 'company changes a drawn answer'

echo '{"type": "object", "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"], "additionalProperties": false}' >"$tmp/schema"
ctl complete --temperature 0 --json-schema "$tmp/schema" --max-tokens 60 \
    'A number:' >"$tmp/object"
"$PYTHON3" -c 'import json, sys; assert json.load(sys.stdin)["n"] in (1, 2)' \
    <"$tmp/object" || fail "the mask let this through: $(cat "$tmp/object")"

ctl chat --session talk --temperature 0 'What is 7 plus 8?' >"$tmp/first"
ctl chat --session talk --append --temperature 0 'And 3 plus 4?' >"$tmp/then"
has 15 <"$tmp/first" || fail "7 plus 8: $(cat "$tmp/first")"
has 7 <"$tmp/then" || fail "3 plus 4: $(cat "$tmp/then")"

stop_stepd gpu
stop_stepd cpu
