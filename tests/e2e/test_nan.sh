#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# A model that computes NaN for one token only (its row of the embedding): the
# request that holds it fails, named by layer in the log; whoever runs beside it
# does not notice; and afterwards every answer is what a fresh daemon gives, bit
# for bit, also where it begins with the very tokens of the one that failed.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
cp -r "$MODEL" "$tmp/model"
chmod -R u+w "$tmp/model"
py "$tmp/model" <<'END'
import json
import struct
import sys

folder = sys.argv[1]
name = "model.embed_tokens.weight"
with open(folder + "/tokenizer.json", encoding="utf-8") as f:
    bad = json.load(f)["model"]["vocab"]["~"]
with open(folder + "/model.safetensors.index.json", encoding="utf-8") as f:
    shard = folder + "/" + json.load(f)["weight_map"][name]
with open(shard, "r+b") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    tensor = json.loads(f.read(n))[name]
    assert tensor["dtype"] == "BF16", tensor
    row = 2 * tensor["shape"][1]
    f.seek(8 + n + tensor["data_offsets"][0] + bad * row)
    f.write(struct.pack("<H", 0x7fc0) * (row // 2))
END

cat >"$tmp/ask.py" <<'END'
import json
import sys
from client import Client, until

path, fresh = sys.argv[1:]
# Longer than a page, and shared by the prompt that fails.
BEGIN = "The list of cities, one a line, with the country of each. " * 9
ASKS = [{"prompt": BEGIN, "temperature": 0, "max_tokens": 20},
        {"prompt": BEGIN + "Kenya:", "temperature": 1, "seed": 5,
         "max_tokens": 20},
        {"prompt": "One two three", "temperature": 0, "max_tokens": 20},
        {"messages": [{"role": "user", "content": "What is 7 plus 5?"}],
         "temperature": 0.7, "seed": 3, "max_tokens": 40}]
for a in ASKS:
    a.update(want_ids=True, logprobs=3)


def answer(events):
    assert events[-1]["event"] == "done", events[-1]
    return [[i for e in events for i in e.get("ids") or []],
            [[p["logprob"], [t["logprob"] for t in p["top"]]]
             for e in events for p in e.get("logprobs") or []]]


def all_answers(c):
    return [answer(list(c.request("generate", **a))) for a in ASKS]


c = Client(path)
if fresh == "fresh":
    with open(sys.argv[0] + ".json", "w", encoding="utf-8") as f:
        json.dump(all_answers(c), f)
    sys.exit()
with open(sys.argv[0] + ".json", encoding="utf-8") as f:
    want = json.load(f)

# Together: two that are fine and one that is not, in either order.
for first in (True, False):
    bad = {"prompt": BEGIN + "and ~ then", "temperature": 0, "max_tokens": 9}
    ids = {}
    if first:
        ids[c.submit("generate", **bad)] = None
    for i in (0, 3):
        ids[c.submit("generate", **ASKS[i])] = i
    if not first:
        ids[c.submit("generate", **bad)] = None
    events = {r: [] for r in ids}
    while any(not v or v[-1]["event"] not in ("done", "error")
              for v in events.values()):
        e = c.recv()
        events[e["id"]].append(e)
    for r, i in ids.items():
        if i is None:
            last = events[r][-1]
            assert last["event"] == "error", last
            assert last["code"] == "internal", last
            assert "non-finite values at layer 0" in last["message"], last
        else:
            assert answer(events[r]) == want[i], i
    assert all_answers(c) == want
# At the first token of a page, and in a prompt of nothing else.
for prompt in ("~", "~" * 200, BEGIN[:100] + "~" + BEGIN):
    last = c.last("generate", prompt=prompt, max_tokens=5)
    assert last["event"] == "error" and last["code"] == "internal", last
    assert all_answers(c) == want
assert c.last("status")["requests"]["failed"] == 5


def all_free():
    pages = c.last("status")["pages"]
    return all(pages[g]["free"] == pages[g]["total"]
               for g in ("full", "sliding"))


# The last step may be ending yet.
assert until(all_free), c.last("status")["pages"]
END

ask()
{
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$srcdir/tests/e2e "$PYTHON3" \
        "$tmp/ask.py" "$sock" "$1"
}

start_stepd --model "$tmp/model"
ask fresh
stop_stepd
for more in prefill_chunk=0 prefill_chunk=64; do
    start_stepd --model "$tmp/model" --set "$more"
    ask again
    stop_stepd
    [ "$(grep -c 'error: job [0-9]*: non-finite values at layer 0$' \
        "$tmp/stepd.log")" -eq 5 ] || fail "not named: $(cat "$tmp/stepd.log")"
done
