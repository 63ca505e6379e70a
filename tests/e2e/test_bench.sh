#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# stepctl bench and top count what the daemon counts.

# shellcheck disable=SC2119 # functions with arguments, called without
# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

cd "$tmp"
start_stepd
ctl bench --concurrency 1,3 --requests 4 --prompt-tokens 40 --max-tokens 5 \
    --json >out || fail "$(cat out)"
ctl status --json >told
"$PYTHON3" - out told <<'END' || fail "$(cat out told)"
import json, sys
levels = [json.loads(line) for line in open(sys.argv[1])]
status = json.load(open(sys.argv[2]))
assert [e["concurrency"] for e in levels] == [1, 3]
for e in levels:
    assert e["requests"] == 4 and e["completion_tokens"] == 5, e
    assert 20 <= e["prompt_tokens"] <= 80, e
    assert e["tokens_per_s"] > 0, e
    # Tokens of one step arrive together: nothing is between them.
    assert e["first_ms"]["p50"] > 0, e
    for times in e["first_ms"], e["between_ms"]:
        assert 0 <= times["p50"] <= times["p95"] <= times["p99"], e
assert status["tokens"]["completion"] == 2 * 4 * 5, status["tokens"]
assert status["tokens"]["cached"] == 0, "a prompt was answered from the cache"
END
ctl bench --concurrency 2 --requests 3 --max-tokens 2 --prompt-tokens 8 >out
[ "$(wc -l <out)" -eq 3 ] || fail "$(cat out)"
for bad in '--concurrency 0' '--concurrency 1,' '--concurrency 65' \
    '--requests 0' '--max-tokens 0' x; do
    # shellcheck disable=SC2086 # words, on purpose
    expect_status 64 ctl bench $bad 2>err
done
# What the daemon refuses is told, and ends it.
expect_status 65 ctl bench --concurrency 2 --prompt-tokens 9000 >out 2>err
grep -q '^stepctl: too_long: ' err || fail "$(cat err)"

ctl top --count 2 --interval 0.1 >out
grep -c '^step-tiny  ready  on cpu ' out | has -x 2 || fail "$(cat out)"
grep -q '^tokens: ' out || fail "no totals at first: $(cat out)"
grep -q '^tokens/s: ' out || fail "no rates then: $(cat out)"
expect_status 64 ctl top --interval 0 2>err
ctl top --interval 0.1 | head -n 1 >out
[ -s out ] || fail "nothing in the pipe"
stop_stepd
