#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# fr_15: tool_choice required and a named tool hold, with a model that would not
# call anything by itself: an answer that ends has called, with a known name and
# arguments as the schema has them, behind reasoning or without, greedy or not,
# and the same with drafts 0 and 3. fr_04: an invalid name cannot come.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
start_stepd
py "$sock" <<'END'
import json
import sys
from client import Client, assert_error

c = Client(sys.argv[1])


def tool(name, properties, required=None):
    return {"type": "function", "function": {"name": name, "parameters": {
        "type": "object", "properties": properties,
        "required": list(properties) if required is None else required}}}


TOOLS = [
    tool("get", {"n": {"type": "integer", "minimum": 0, "maximum": 99},
                 "unit": {"type": "string", "enum": ["C", "F"]}}),
    tool("ping", {}),
    tool("put", {"flags": {"type": "array", "items": {"type": "boolean"},
                           "maxItems": 3},
                 "at": {"type": "object", "properties": {
                     "x": {"type": "integer", "minimum": -9, "maximum": 9}},
                     "required": ["x"]},
                 "note": {"type": "string"}}, ["flags", "at"]),
]
CHECK = {
    "get": lambda a: set(a) == {"n", "unit"} and 0 <= a["n"] <= 99
    and a["unit"] in ("C", "F"),
    "ping": lambda a: a == {},
    "put": lambda a: list(a)[:2] == ["flags", "at"] and
    set(a) <= {"flags", "at", "note"} and len(a["flags"]) <= 3 and
    all(isinstance(f, bool) for f in a["flags"]) and
    -9 <= a["at"]["x"] <= 9 and isinstance(a.get("note", ""), str),
}


def run(**more):
    got = {"content": "", "reasoning": "", "calls": [], "ids": []}
    for e in c.request("generate", messages=[
            {"role": "user", "content": "hello"}], tools=TOOLS, want_ids=True,
            max_tokens=400, **more):
        if e["event"] == "delta":
            got["ids"] += e.get("ids") or []
            if e["kind"] == "tool_call":
                if "call" in e:
                    got["calls"].append(e["call"])
                assert "call_dropped" not in e, e
            else:
                got[e["kind"]] += e.get("text", "")
    assert e["event"] == "done", e
    got["finish"] = e["finish_reason"]
    return got


named = {"type": "function", "function": {"name": "get"}}
ended = cut = 0
for seed in range(6):
    for choice in ("required", named):
        for thinking in (True, False):
            for t in (0, 1):
                ask = dict(tool_choice=choice, thinking=thinking,
                           temperature=t, seed=seed)
                a, b = run(**ask, drafts=0), run(**ask, drafts=3)
                assert a == b, (ask, a, b)
                if a["finish"] == "length":
                    cut += 1
                    continue
                ended += 1
                assert a["finish"] == "tool_calls" and a["calls"], (ask, a)
                assert a["content"] == "", a
                assert choice == "required" or \
                    [k["name"] for k in a["calls"]] == ["get"], a
                for k in a["calls"]:
                    assert CHECK[k["name"]](json.loads(k["arguments"])), a
print(f"{ended} answers called, {cut} were cut at max_tokens")
assert ended >= 20, (ended, cut)

e = c.last("generate", messages=[{"role": "user", "content": "x"}],
           tool_choice="required", tools=[tool("f", {"a": {
               "type": "object", "patternProperties": {}}})])
assert_error(e, "bad_request", "tools")
assert "patternProperties" in e["message"] and "f/a" in e["message"], e
e = c.last("generate", messages=[{"role": "user", "content": "x"}],
           tools=TOOLS, response_format={"type": "json_object"})
assert_error(e, "bad_request", "response_format")
# A format that asks for nothing takes nothing away from tool_choice.
for choice in ("required", {"type": "function", "function": {"name": "get"}}):
    events = list(c.request(
        "generate", messages=[{"role": "user", "content": "What is 7 plus 8?"}],
        tools=TOOLS, tool_choice=choice, temperature=0, thinking=False,
        response_format={"type": "text"}))
    assert events[-1]["finish_reason"] in ("tool_calls", "length"), events[-1]
    assert events[1]["kind"] == "tool_call", events[1]
for choice in ("get", "any", {}, {"type": "function", "function": {"name": "x"}}):
    e = c.last("generate", messages=[{"role": "user", "content": "x"}],
               tools=TOOLS, tool_choice=choice)
    assert_error(e, "bad_request", "tool_choice")
END
