#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# A canary: prompts, answers and whatever else a client sends appear in no log
# line, status, metric or error, at the most talkative level; one line a request
# says who, how much and how long.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
start_stepd --set log_level=debug
py "$sock" "$tmp/answers" <<'END'
import sys
from client import Client, HEADER

path = sys.argv[1]
CANARY = "xyzzyplugh"
answers = []


def look(c):
    seen = repr(c.last("status")) + repr(list(c.request("metrics")))
    assert CANARY not in seen, seen
    for a in answers:
        assert len(a.strip()) < 6 or a.strip()[:12] not in seen, seen


c = Client(path, hello=False)
c.say_hello(client_name=CANARY)
answers.append(c.generate(prompt=CANARY + " is", max_tokens=8,
                          temperature=0)[0])
answers.append(c.generate(messages=[{"role": "user", "content": CANARY}],
                          max_tokens=8, stop=[CANARY], temperature=0)[0])
for op, keys in (("tokenize", {"prompt": CANARY}),
                 ("render", {"messages": [{"role": "user",
                                           "content": CANARY}]}),
                 ("generate", {"prompt": CANARY, CANARY: 1}),
                 ("generate", {"prompt": CANARY, "temperature": CANARY}),
                 ("generate", {"messages": [{"role": CANARY}]}),
                 ("generate", {"messages": [CANARY]}),
                 ("generate", {"prompt": CANARY * 100000}),
                 (CANARY, {})):
    c.last(op, **keys)
    look(c)
# What is wrong with a text is told without the text.
TOOL = {"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {CANARY: {"type": CANARY}}}}}
for keys in ({"prompt": CANARY * 100000}, {"prompt": CANARY, "stop": [""]},
             {"prompt": CANARY, "stop": [CANARY] * 99},
             {"messages": [{"role": "user", "content": {CANARY: CANARY}}]},
             {"messages": [{"role": "user", "content": [{"type": "text",
                                                         CANARY: CANARY}]}]},
             {"messages": [{"role": "tool", "content": CANARY}]},
             {"messages": [{"role": "user", "content": CANARY}],
              "tools": [TOOL, CANARY]},
             {"messages": [{"role": "user", "content": CANARY * 100000}]},
             {"prompt": CANARY, "max_tokens": 0},
             {"prompt": CANARY.encode() + b"\xff", "drafts": 9}):
    for e in c.request("generate", **{"max_tokens": 2, **keys}):
        if e["event"] == "error":
            assert CANARY not in repr(e), e
    look(c)
running = c.submit("generate", prompt=CANARY, max_tokens=2000)
while c.recv()["event"] != "delta":
    pass
with Client(path) as other:
    look(other)
c.close()
bad = Client(path)
bad.send_raw(HEADER.pack(1 + len(CANARY)) + b"\x81" + CANARY.encode())
bad.recv()
bad.close()
with open(sys.argv[2], "w", encoding="utf-8") as f:
    for a in answers:
        print(a.strip()[:12], file=f)
END
stop_stepd
if grep -in xyzzyplugh "$tmp/stepd.log"; then
    fail "what a client sent is in the log"
fi
while IFS= read -r answer; do
    if [ ${#answer} -ge 6 ] && grep -F -- "$answer" "$tmp/stepd.log"; then
        fail "an answer is in the log"
    fi
done <"$tmp/answers"
grep -Eq 'request uid=[0-9]+ job=1 op=generate finish=[a-z]+ prompt_tokens=[0-9]+ .*completion_tokens=[1-8] .*total_ms=[0-9.]+$' \
    "$tmp/stepd.log" || fail "no line about the first request"
[ "$(grep -c ' request uid=.* job=1 ' "$tmp/stepd.log")" -eq 1 ] ||
    fail "more than one line about one request"
