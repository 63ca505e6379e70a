#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Weights that cannot compute (field report 19): every header is right, but one
# norm holds NaN. The start's self-test finds it: the daemon ends with 70,
# names the checkpoint and the cause, and nobody is told that it is ready.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

requires_msgpack
if "$STEPD" --version | has 'libsystemd *no'; then
    skip "stepd was built without libsystemd"
fi

# copy_model DIR [VALUE]: step-tiny with VALUE, a BF16 in hex, in one place of
# the last norm.
copy_model()
{
    cp -r "$MODEL" "$1"
    chmod -R u+w "$1"
    py "$1" "${2-}" <<'END'
import json
import struct
import sys

folder, value = sys.argv[1:]
name = "model.norm.weight"
with open(folder + "/model.safetensors.index.json", encoding="utf-8") as f:
    shard = folder + "/" + json.load(f)["weight_map"][name]
with open(shard, "r+b") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    tensor = json.loads(f.read(n))[name]
    assert tensor["dtype"] == "BF16", tensor
    f.seek(8 + n + tensor["data_offsets"][0])
    if value:
        f.write(struct.pack("<H", int(value, 16)))
END
}

# fr_19 MODEL STATUS READY: starts it below a fake service manager; it must end
# with STATUS (after SIGTERM, where it became ready) and have said READY=1 so
# many times. Its log is $tmp/log.
fr_19()
{
    echo "kv_memory = $KV_MEMORY" >"$tmp/stepd.conf"
    rm -f "$tmp/notify"
    py "$STEPD" "$tmp" "$@" <<'END'
import os
import signal
import socket
import subprocess
import sys
import threading

stepd, tmp, model, status, ready = sys.argv[1:]
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(tmp + "/notify")
with open(tmp + "/log", "wb") as log:
    p = subprocess.Popen(
        [stepd, "--config", tmp + "/stepd.conf", "--model", model, "--socket",
         tmp + "/stepd.sock"], stderr=log,
        env=dict(os.environ, NOTIFY_SOCKET=tmp + "/notify"))


def when_it_has_ended():
    p.wait()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(b"END", tmp + "/notify")


# Heard to its end: a few lines that nobody reads, and it waits for a reader.
threading.Thread(target=when_it_has_ended, daemon=True).start()
manager.settimeout(120)
heard = []
try:
    while "END" not in heard:
        lines = manager.recv(4096).decode().split("\n")
        heard += lines
        if "READY=1" in lines:
            p.send_signal(signal.SIGTERM)
finally:
    p.kill()
got = p.wait()
assert got == int(status), f"exit status {got}, not {status}"
assert heard.count("READY=1") == int(ready), heard
assert any(s.startswith("STATUS=") for s in heard), heard
END
}

# The copy itself is good: what follows is the NaN's doing.
copy_model "$tmp/good"
fr_19 "$tmp/good" 0 1 || fail "a good copy: $(cat "$tmp/log")"

copy_model "$tmp/nan" 7fc0
fr_19 "$tmp/nan" 70 0 || fail "fr_19: $(cat "$tmp/log")"
grep -qF "$tmp/nan: self-test: the fixed prompt gave logits that are not finite" \
    "$tmp/log" || fail "fr_19: the cause is not named: $(cat "$tmp/log")"
