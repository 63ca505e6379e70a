#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# While the model loads (held at its first byte by test_hold_load) the socket is
# served: hello, ping, describe, status, metrics and cancel are answered, generate
# waits or says busy. A load that fails ends the waiting with the cause.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
launch_stepd --set test_hold_load=yes --set max_queue=4
wait_for_line "$tmp/stepd.log" 'stepd .*: '
py "$sock" "$stepd_pid" <<'END'
import os
import signal
import sys
from client import Client, assert_error

path, pid = sys.argv[1], int(sys.argv[2])
c = Client(path)
assert c.hello["limits"].get("max_model_len", 0) == 0
assert c.last("ping")["state"] == "loading"
assert c.last("describe")["event"] == "done"
s = c.last("status")
assert s["state"] == "loading" and s["load"]["done"] <= s["load"]["total"], s
text = "".join(e.get("text", "") for e in c.request("metrics"))
assert "stepd_state{state=\"loading\"} 1\n" in text, text

# generate waits, up to max_queue; wait: false does not
waiting = [c.submit("generate", prompt="Once", temperature=0, max_tokens=4,
                    want_ids=True) for _ in range(4)]
e = c.last("generate", prompt="Once")
assert_error(e, "busy")
e = c.last("generate", prompt="Once", wait=False)
assert_error(e, "busy")
assert e["retry_ms"] > 0, e

# one that waits can be cancelled, and one whose client leaves is gone
cancel = c.submit("cancel", target=waiting[0])
ends = {}
while len(ends) < 2:
    e = c.recv()
    if e["event"] == "done":
        ends[e["id"]] = e
assert ends[waiting[0]]["finish_reason"] == "cancelled", ends
other = Client(path)
other.submit("generate", prompt="never")
other.last("ping")
other.close()
while len(c.last("status")["jobs"]) > 3:
    pass

os.kill(pid, signal.SIGUSR1)
answers = {}
ended = 0
while ended < 3:
    e = c.recv()
    answers.setdefault(e["id"], []).extend(e.get("ids") or [])
    if e["event"] in ("done", "error"):
        assert e["event"] == "done" and e["id"] in waiting[1:], e
        ended += 1
assert answers[waiting[1]] == answers[waiting[2]] == answers[waiting[3]]
assert len(answers[waiting[1]]) == 4
assert c.last("ping")["state"] == "ready"
assert c.last("status")["load"]["done"] > 0
with Client(path) as c2:
    assert c2.hello["limits"]["max_model_len"] > 0
END
wait_for_line "$tmp/stepd.log" 'loading: [0-9.]+ of [0-9.]+ GiB'
stop_stepd

# ---- a load that fails: who waits is told why, and the status is 65
cp -r "$MODEL" "$tmp/broken"
chmod -R u+w "$tmp/broken"
echo '{}' >"$tmp/broken/tokenizer.json"
launch_stepd -n broken --set test_hold_load=yes --model "$tmp/broken"
wait_for_line "$tmp/broken.log" 'stepd .*: '
py "$sock" "$stepd_pid" <<'END'
import os
import signal
import sys
from client import Client, assert_error

path, pid = sys.argv[1], int(sys.argv[2])
c = Client(path)
request_id = c.submit("generate", prompt="Once")
c.last("ping")
os.kill(pid, signal.SIGUSR1)
e = c.recv()
assert_error(e, "unavailable", request_id=request_id)
assert "tokenizer" in e["message"], e
assert c.at_end()
END
reap_stepd broken 65
wait_for_line "$tmp/broken.log" 'giving up \(status 65\): .*tokenizer'
