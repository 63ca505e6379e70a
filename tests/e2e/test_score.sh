#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Logprobs of given text: the score op and prompt_logprobs say, bit for bit,
# what generation said of the same tokens, whatever the chunks; they come in
# parts, with exact bytes, and nothing of the prompt out of a cache.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
for chunk in 0 7; do
    start_stepd --set "prefill_chunk=$chunk"
    py "$sock" <<'END'
import math
import sys
from client import Client, assert_error

c = Client(sys.argv[1])


def collect(op, **keys):
    """Logprobs of the parts, of the deltas, and the last event."""
    parts, deltas, text = [], [], ""
    for e in c.request(op, **keys):
        if e["event"] == "part":
            assert e["logprobs"], e
            parts += e["logprobs"]
        elif e["event"] == "delta":
            deltas += e.get("logprobs") or []
            text += e.get("text", "")
    return parts, deltas, text, e


PROMPT = "Once upon a time there was a"
_, drawn, text, done = collect("generate", prompt=PROMPT, temperature=0,
                               max_tokens=40, logprobs=3, drafts=0,
                               ignore_eos=True)
assert done["event"] == "done" and len(drawn) == 40, done
whole = b"".join(t["bytes"] for t in drawn)

scored, _, _, end = collect("score", prompt=PROMPT.encode() + whole,
                            logprobs=3)
assert end["event"] == "done", end
assert end["count"] == len(scored), end
assert b"".join(t["bytes"] for t in scored) == PROMPT.encode() + whole
# The text may be cut into other tokens than were drawn; where it is not, every
# number is the same.
n = min(len(drawn), len(scored))
if [t["id"] for t in scored[-n:]] == [t["id"] for t in drawn[-n:]]:
    assert scored[-n:] == drawn[-n:], (scored[-n:], drawn[-n:])
    print("generation and score agree on", n)
else:
    print("cut otherwise")
for t in scored:
    assert t["logprob"] <= 0 and len(t["top"]) == 3, t
    assert t["top"][0]["logprob"] >= t["logprob"], t

for drafts in (0, 3):
    for _ in range(2):  # the second time there is a cache
        asked, _, _, done = collect(
            "generate", prompt=PROMPT.encode() + whole, max_tokens=5,
            prompt_logprobs=3, temperature=0, drafts=drafts)
        assert asked == scored, drafts
        assert done["usage"]["cached_tokens"] == 0, done
bare, _, _, _ = collect("score", prompt=PROMPT)
assert all(t["top"] == [] for t in bare), bare
assert [t["logprob"] for t in bare] == \
    [t["logprob"] for t in scored[:len(bare)]], "a prefix scores the same"
long, _, _, end = collect("score", prompt="word " * 700)
assert end["count"] == len(long) > 500, end
assert_error(c.last("score", prompt=""), "bad_request")
chat, _, _, done = collect("generate", messages=[
    {"role": "user", "content": "hi"}], prompt_logprobs=0, max_tokens=4)
assert len(chat) == done["usage"]["prompt_tokens"] - 1, done

# What was drawn from, in the place of what the model said.
ASK = {"prompt": PROMPT, "max_tokens": 24, "ignore_eos": True, "seed": 3,
       "logprobs": 20}
for keys in ({"temperature": 0.8, "top_k": 6}, {"temperature": 1,
             "top_p": 0.7, "logit_bias": {"101": 3, "116": -100}}):
    raw = collect("generate", **ASK, **keys, drafts=0)[1]
    sampled = [collect("generate", **ASK, **keys, drafts=d,
                       logprobs_mode="sampled")[1] for d in (0, 1, 3)]
    assert sampled[0] == sampled[1] == sampled[2], keys
    assert [t["id"] for t in raw] == [t["id"] for t in sampled[0]]
    assert raw != sampled[0]
    for t in sampled[0]:
        assert t["id"] != 116 or "logit_bias" not in keys, t
        assert t["logprob"] <= 0
        if "top_k" in keys:  # all that was left
            assert len(t["top"]) == 6, t
            total = sum(math.exp(x["logprob"]) for x in t["top"])
            assert abs(total - 1) < 1e-5, t
        assert t["id"] in [x["id"] for x in t["top"]], t
asked = collect("generate", prompt=PROMPT.encode() + whole, max_tokens=5,
                prompt_logprobs=3, logprobs_mode="sampled")[0]
assert asked == scored, "logprobs of the prompt stay raw"
import json, hashlib
print("digest", hashlib.sha256(json.dumps(
    [[t["id"], t["logprob"]] for t in scored + long]).encode()).hexdigest())
END
    stop_stepd
done >"$tmp/out"
cat "$tmp/out"
[ "$(grep -c '^generation and score agree' "$tmp/out")" -eq 2 ] ||
    fail "the answer's text is not cut as it was drawn: choose another prompt"
[ "$(grep '^digest' "$tmp/out" | sort -u | wc -l)" -eq 1 ] ||
    fail "chunks change scores"

# ---- stepctl
start_stepd
ctl score "The capital of Kenya" >"$tmp/score"
[ "$(wc -l <"$tmp/score")" -ge 3 ] || fail "stepctl score: $(cat "$tmp/score")"
grep -Eq $'^-?[0-9.]+\t' "$tmp/score" || fail "stepctl score prints no numbers"
answer=$(ctl complete x --logit-bias 100=99.5 --logit-bias 5=-1 --max-tokens 3 --ids)
[ "$answer" = "100 100 100" ] || fail "--logit-bias: $answer"
answer=$(ctl complete x --logit-bias 100=99.5 --max-tokens 1 --json --logprobs 1 \
    --top-k 1 --logprobs-mode sampled)
grep -Eq '"id": 100, "logprob": -?0(\.0)?,' <<<"$answer" ||
    fail "--logprobs-mode: $answer"
answer=$(ctl complete "The capital of" --choice Kenya --choice Peru --seed 1)
[[ $answer == Kenya || $answer == Peru ]] || fail "--choice: $answer"
echo '{"type": "integer", "minimum": 3, "maximum": 42}' >"$tmp/schema.json"
answer=$(ctl chat "How many?" --no-thinking --json-schema "$tmp/schema.json")
[[ $answer =~ ^[0-9]+$ && $answer -ge 3 && $answer -le 42 ]] ||
    fail "--json-schema: $answer"
echo '{"not": {}}' >"$tmp/schema.json"
status=0
ctl complete x --json-schema "$tmp/schema.json" 2>"$tmp/err" || status=$?
[ "$status" -eq 64 ] || fail "a schema that is refused: exit $status"
grep -q '"not"' "$tmp/err" || fail "the keyword is not named: $(cat "$tmp/err")"
