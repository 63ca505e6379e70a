#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Structured output of the real daemon with a model that knows little of JSON:
# answers to schemas parse and are valid for an independent validator, at
# temperature 0 and 1, alone in reasoning or behind it, and are the same with
# drafts 0 and 3. A sample; STEPD_TEST_ALL=1 takes all 300 pairs.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
"$PYTHON3" -c 'import jsonschema' 2>/dev/null ||
    skip "python3 has no jsonschema module (python3-jsonschema)"
start_stepd
py "$sock" "$srcdir/tests/data/schemas.jsonl" "${STEPD_TEST_ALL:-0}" <<'END'
import json
import re
import sys
import jsonschema
from client import Client, assert_error

c = Client(sys.argv[1])
rows = [json.loads(line) for line in open(sys.argv[2], encoding="utf-8")]
whole = sys.argv[3] == "1"
PROMPTS = ["The answer as JSON: ", "Once upon a time", "What is 7 plus 8? "]
WINDOW = 32  # in flight; the daemon takes 64
MAX_TOKENS = 300


def collect(asks):
    """The finished text, ids and reason of each, many at a time."""
    got, open_ids, todo = {}, {}, list(enumerate(asks))
    while todo or open_ids:
        while todo and len(open_ids) < WINDOW:
            i, ask = todo.pop(0)
            open_ids[c.submit("generate", **ask)] = i
            got[i] = {"content": "", "reasoning": "", "ids": []}
        e = c.recv()
        if e["id"] not in open_ids:
            continue
        g = got[open_ids[e["id"]]]
        if e["event"] == "delta":
            g[e["kind"]] += e.get("text", "")
            g["ids"] += e.get("ids") or []
        elif e["event"] == "done":
            g["finish"] = e["finish_reason"]
            g["tokens"] = e["usage"]["completion_tokens"]
            del open_ids[e["id"]]
        elif e["event"] == "error":
            raise AssertionError((asks[open_ids[e["id"]]], e))
    return [got[i] for i in range(len(asks))]


# Left alone, the model goes on in a string for ever. Most answers are pushed to
# the end of what is open: what a mask allows is not changed by that.
closing = {}
for i in range(1000):
    text = b"".join(e["text"] for e in c.request("detokenize", ids=[i])
                    if e["event"] == "part")
    if text[:1] in (b'"', b"]", b"}"):
        closing[str(i)] = 10
assert len(closing) >= 3, closing

pairs = [(rows[i % len(rows)], PROMPTS[i % 3] if i < len(rows)
          else PROMPTS[(i + 1) % 3]) for i in range(300)]
if not whole:
    pairs = pairs[::6]
asks = []
for n, (row, prompt) in enumerate(pairs):
    base = dict(response_format={"type": "json_schema", "json_schema": {
                    "name": row["name"], "schema": row["schema"]}},
                seed=n, max_tokens=MAX_TOKENS, want_ids=True)
    if n % 16:
        base.update(logit_bias=closing)
    if n % 3 == 2:
        base.update(messages=[{"role": "user", "content": prompt}],
                    thinking=n % 6 == 5, max_reasoning_tokens=20)
    else:
        base.update(prompt=prompt)
    for t in (0, 1):
        asks.append(dict(base, temperature=t, drafts=0))
        asks.append(dict(base, temperature=t, drafts=3))
answers = collect(asks)
ended = cut = thought = 0
for k in range(0, len(asks), 2):
    row, a, b = pairs[k // 4][0], answers[k], answers[k + 1]
    assert a == b, (row["name"], asks[k]["temperature"], a, b)
    text = a["content"]
    if a["finish"] != "stop":
        # A prefix; without a limit on its strings an answer may go on.
        assert a["finish"] == "length" and a["tokens"] == MAX_TOKENS, a
        cut += 1
        continue
    ended += 1
    thought += a["reasoning"] != ""
    jsonschema.validate(json.loads(text), row["schema"],
                        cls=jsonschema.Draft202012Validator)
print(f"{len(asks)} answers: {ended * 2} ended and valid, {cut * 2} cut at "
      f"max_tokens, {thought * 2} reasoned first")
assert ended >= 3 * cut, (ended, cut)

# ---- the other forms
one = dict(prompt="The capital of", temperature=1, max_tokens=100)


def text_of(**ask):
    events = list(c.request("generate", **ask))
    assert events[-1]["event"] == "done", events[-1]
    return "".join(e.get("text", "") for e in events), events[-1]


for seed in range(8):
    text, done = text_of(**one, seed=seed, response_format={
        "type": "choice", "choice": ["Kenya", "Ken", "Peru"]})
    assert text in ("Kenya", "Ken", "Peru") and \
        done["finish_reason"] == "stop", text
    text, _ = text_of(**one, seed=seed, response_format={
        "type": "regex", "regex": r"\d{3}-[a-f]{2,5}( ok)?"})
    assert re.fullmatch(r"\d{3}-[a-f]{2,5}( ok)?", text), text
plain, _ = text_of(**one, seed=1)
same, _ = text_of(**one, seed=1, response_format={"type": "text"})
assert plain == same

# ---- refusals name the key and the keyword
for form, words in (
        ({"type": "json_schema", "schema": {"not": {}}}, '"not"'),
        ({"type": "json_schema", "schema": {"type": "string",
                                            "pattern": "(?=a)"}}, "look-ahead"),
        ({"type": "yaml"}, "type must be"),
        ({"type": "regex", "regex": "(" * 100}, "too deep"),
        ({"type": "json_schema", "schema": False}, "no answer can fit")):
    e = c.last("generate", **one, response_format=form)
    assert_error(e, "bad_request", "response_format")
    assert words in e["message"], e

# ---- what is too large to be followed from its first state on says so
e = c.last("generate", **one, response_format={"type": "regex",
                                               "regex": "a?" * 2040 + "b"})
assert_error(e, "too_long", "response_format")
assert e["message"].startswith("response_format: too large"), e
assert c.last("ping")["state"] == "ready"
END

# ---- bad words: none of them occurs, whatever tokens would spell it
py "$sock" <<'END'
import sys
from client import Client, assert_error

c = Client(sys.argv[1])


def text_of(**more):
    events = list(c.request("generate", max_tokens=60, **more))
    assert events[-1]["event"] == "done", events[-1]
    return "".join(e.get("text", "") for e in events)


ask = dict(prompt="Once upon a time", temperature=0)
plain = text_of(**ask)
words = sorted({w for w in plain.split() if len(w) > 2})[:6]
assert words, plain
for drafts in (0, 3):
    other = text_of(**ask, bad_words=words + ["e t"], drafts=drafts)
    assert other and not any(w in other for w in words + ["e t"]), other
    last = other if drafts == 0 else last
    assert last == other, (last, other)
assert_error(c.last("generate", **ask, bad_words=["x"],
                    response_format={"type": "json_object"}),
             "bad_request", "bad_words")
assert_error(c.last("generate", **ask, bad_words=["x"] * 17), "bad_request",
             "bad_words")
END
