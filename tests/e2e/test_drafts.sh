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
assert s["beta"] == [1, 1, 1], s  # field report 41: how drafts are drawn
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

# ---- config.json promises MTP layers that are not there (field report 20):
# served without drafts, which is said; an error only where they are required
cp -r "$MODEL" "$tmp/bare"
chmod -R u+w "$tmp/bare"
py "$tmp/bare" <<'END'
import json
import re
import struct
import sys

folder = sys.argv[1]
with open(folder + "/config.json", encoding="utf-8") as f:
    config = json.load(f)
text = config.get("text_config", config)
assert text["num_nextn_predict_layers"] == 3, text
first = text["num_hidden_layers"]
index_file = folder + "/model.safetensors.index.json"
with open(index_file, encoding="utf-8") as f:
    index = json.load(f)
shards = set(index["weight_map"].values())


def is_mtp(name):
    layer = re.search(r"layers\.(\d+)\.", name)
    return layer is not None and int(layer[1]) >= first


for shard in shards:
    with open(f"{folder}/{shard}", "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        data = f.read()
    out, kept = b"", {}
    for name, t in header.items():
        if name != "__metadata__" and not is_mtp(name):
            a, b = t["data_offsets"]
            kept[name] = dict(t, data_offsets=[len(out), len(out) + b - a])
            out += data[a:b]
    head = json.dumps(kept).encode()
    head += b" " * (-len(head) % 8)
    with open(f"{folder}/{shard}", "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + out)
index["weight_map"] = {k: v for k, v in index["weight_map"].items()
                       if not is_mtp(k)}
with open(index_file, "w", encoding="utf-8") as f:
    json.dump(index, f)
END
start_stepd -n bare --model "$tmp/bare"
wait_for_line "$tmp/bare.log" 'has no tensor: drafting is off'
py "$sock" <<'END'
import sys
from client import Client

c = Client(sys.argv[1])
d = c.last("generate", prompt="Once upon a time", max_tokens=4)
assert d["event"] == "done" and d["usage"]["drafts"] == 0, d
s = c.last("status")
assert s["drafts"]["state"] == "none", s
assert s["drafts"]["beta"] == s["drafts"]["accepted_at"] == [], s
END
expect_status 0 ctl complete --max-tokens 2 Once >/dev/null 2>&1
stop_stepd bare
launch_stepd -n required --model "$tmp/bare" --set drafts=require
reap_stepd required 65
wait_for_line "$tmp/required.log" \
    'has no tensor: drafting is required by the configuration'
