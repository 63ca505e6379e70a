#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# What the daemon says of drafting: at its start, in done.usage, status and
# metrics, which agree with each other; and field report 37: more drafts than
# there are layers are refused with the limit named.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
start_stepd
wait_for_line "$tmp/stepd.log" \
    'Detected MTP model: 3 draft layers, sharing target embeddings'
py "$sock" <<'END'
import re
import sys
from client import Client, assert_error

c = Client(sys.argv[1])
ask = dict(prompt="Once upon a time", temperature=0, max_tokens=60,
           want_ids=True)


def run(**more):
    ids = []
    for e in c.request("generate", **ask, **more):
        ids += e.get("ids") or []
    assert e["event"] == "done", e
    return ids, e["usage"]


def counters():
    text = "".join(e.get("text", "") for e in c.request("metrics"))
    return {k: int(v) for k, v in
            re.findall(r"^stepd_spec_decode_(\S+) (\d+)$", text, re.M)}


zero = counters()
assert zero["num_drafts"] == 0, zero
expected, usage = run(drafts=0)
assert usage["drafts"] == usage["drafted"] == usage["accepted"] == 0, usage
assert "mean_acceptance_length" not in usage, usage
assert counters()["num_proposals_per_pos{position=\"0\"}"] == 0
total = dict(drafts=0, drafted=0, accepted=0, at=[0, 0, 0])
for k in (1, 2, 3, None):
    ids, u = run() if k is None else run(drafts=k)
    assert ids == expected, k
    assert 0 < u["accepted"] <= u["drafted"] <= (k or 3) * u["drafts"], u
    at = u["accepted_at"]
    assert sum(at) == u["accepted"] and at == sorted(at, reverse=True), u
    assert not any(at[k or 3:]), u
    assert u["mean_acceptance_length"] == 1 + u["accepted"] / u["drafts"], u
    for key in ("drafts", "drafted", "accepted"):
        total[key] += u[key]
    total["at"] = [a + b for a, b in zip(total["at"], at)]

# the whole is the sum of the requests, but for what the end of an answer cut
s = c.last("status")["drafts"]
assert s["state"] == "on" and 0 <= s["depth"] <= 3, s
assert s["verified"] == total["drafts"] and s["drafted"] == total["drafted"], s
assert 0 <= s["accepted"] - total["accepted"] <= 4 * 3, (s, total)
assert s["mean_acceptance_length"] == 1 + s["accepted"] / s["verified"], s
m = counters()
assert m["num_drafts"] == s["verified"], m
assert m["num_draft_tokens"] == s["drafted"], m
assert m["num_accepted_tokens"] == s["accepted"], m
for i in range(3):
    at = m[f"num_accepted_tokens_per_pos{{position=\"{i}\"}}"]
    assert at == s["accepted_at"][i], m
    # a head of its own for each position; what was cut was made, not verified
    assert m[f"num_proposals_per_pos{{position=\"{i}\"}}"] >= at > 0, m

# field report 37: 1 to 3, and the limit in the refusal
e = c.last("generate", prompt="Once", drafts=4)
assert_error(e, "bad_request")
assert e["detail"] == "drafts" and "3" in e["message"], e
END
stop_stepd

# ---- a limit of the configuration's
start_stepd -n two --set drafts=2
ctl complete --drafts 2 --max-tokens 2 Once >/dev/null 2>&1
expect_status 64 ctl complete --drafts 3 --max-tokens 2 Once \
    >/dev/null 2>"$tmp/err"
grep -q 'drafts may be 2 at most' "$tmp/err" || fail "$(cat "$tmp/err")"
stop_stepd two
