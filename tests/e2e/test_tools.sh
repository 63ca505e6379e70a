#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# A loop of tool calls as a program runs it, by a foreign client: the call
# streams and comes whole, its result goes back, the answer uses the prefix
# that is there. And the limits of an answer, from outside.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
start_stepd
py "$sock" <<'END'
import json
import sys
from client import Client, assert_error

c = Client(sys.argv[1])

TOOLS = [{"type": "function", "function": {
    "name": "get_time", "description": "Get the local time of a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string"}}, "required": ["city"]}}}]
ASK = [{"role": "user", "content": "What time is it in Canberra?"}]


def generate(messages, **keys):
    return list(c.request("generate", messages=messages, **keys))


def join(events, kind):
    return "".join(e.get("text", "") for e in events
                   if e.get("kind") == kind and "text" in e)


for drafts in (0, 3):
    e = generate(ASK, tools=TOOLS, temperature=0, drafts=drafts)
    calls = [x["call"] for x in e if "call" in x]
    assert [(k["index"], k["name"]) for k in calls] == [(0, "get_time")], calls
    assert json.loads(calls[0]["arguments"]) == {"city": "Canberra"}
    begun = [x["call_begin"] for x in e if "call_begin" in x]
    assert begun == [{"index": 0, "id": calls[0]["id"], "name": "get_time"}]
    grown = "".join(x["call_args"]["text"] for x in e if "call_args" in x)
    assert grown == calls[0]["arguments"]
    assert e[-1]["finish_reason"] == "tool_calls"
    assert join(e, "content") == "", join(e, "content")
    reasoning = join(e, "reasoning")
    assert e[-1]["usage"]["reasoning_tokens"] > 3
first = e[-1]["usage"]

# The result goes back; arguments as another library would write them.
back = ASK + [
    {"role": "assistant", "content": None, "reasoning_content": reasoning,
     "tool_calls": [{"id": calls[0]["id"], "type": "function", "function": {
         "name": "get_time", "arguments": '{"city":"Canberra"}'}}]},
    {"role": "tool", "tool_call_id": calls[0]["id"],
     "content": "09:30"}]
e = generate(back, tools=TOOLS, temperature=0)
assert e[-1]["finish_reason"] == "stop", e[-1]
assert join(e, "content")
usage = e[-1]["usage"]
assert usage["prompt_tokens"] > first["prompt_tokens"] + first[
    "completion_tokens"], usage

# none: tools are shown and not called.
e = generate(ASK, tools=TOOLS, tool_choice="none", temperature=0,
             max_tokens=60)
assert not [x for x in e if x.get("kind") == "tool_call"], e
assert "<tool_call>" not in join(e, "content")
# Without tools no tag means anything.
e = generate(ASK, temperature=0, max_tokens=60)
assert not [x for x in e if x.get("kind") == "tool_call"], e

# Limits.
for budget in (0, 3):
    e = generate(ASK, tools=TOOLS, temperature=0, max_tokens=60,
                 max_reasoning_tokens=budget)
    assert e[-1]["usage"]["reasoning_tokens"] == budget, e[-1]
e = generate(ASK, temperature=0, thinking=False, ignore_eos=True,
             max_tokens=30, want_bytes=True)
assert e[-1]["finish_reason"] == "length"
assert all(isinstance(x["text"], bytes) for x in e if "text" in x)

# What cannot be is refused by its name.
for keys, code, detail in (
        ({"tool_choice": "sometimes"}, "bad_request", None),
        ({"tool_choice": {"type": "function", "function": {"name": "no"}},
          "tools": TOOLS}, "bad_request", None),
        ({"stop_ids": [10 ** 9]}, "bad_request", "stop_ids"),
        ({"stop_ids": [1] * 65}, "bad_request", "stop_ids"),
        ({"logit_bias": {"1000000000": 1}}, "bad_request", "logit_bias"),
        ({"logit_bias": {"e": 1}}, "bad_request", "logit_bias"),
        ({"logit_bias": {"5": 101}}, "bad_request", "logit_bias"),
        ({"logit_bias": {str(i): 1 for i in range(1025)}}, "bad_request",
         "logit_bias"),
        ({"logprobs_mode": "cooked"}, "bad_request", "logprobs_mode"),
        ({"max_reasoning_tokens": -1}, "bad_request",
         "max_reasoning_tokens")):
    e = generate(ASK, **keys)
    assert_error(e[-1], code, detail)
    if code == "bad_request" and detail is None:
        assert "tool_choice" in e[-1]["message"], e[-1]
END

# The same in a shell.
cat >"$tmp/tools" <<'END'
[{"type": "function", "function": {"name": "get_time",
  "description": "Get the local time of a city.",
  "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}}, "required": ["city"]}}}]
END
out=$(ctl chat --tools "$tmp/tools" --temperature 0 \
    'What time is it in Canberra?')
[ "$out" = 'get_time(city="Canberra")' ] || fail "stepctl: '$out'"
stop_stepd
