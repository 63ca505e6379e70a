#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# stepctl metrics --http: one HTTP request on a connected socket, as a unit with
# Accept=yes hands it over; read by Python's own HTTP client.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

start_stepd
ctl complete --max-tokens 3 --temperature 0 'One two' >/dev/null
cat >"$tmp/scrape.py" <<'END'
import http.client
import socket
import subprocess
import sys

stepctl, sock = sys.argv[1:]


class Connection(http.client.HTTPConnection):
    """The other end of the socket is stepctl."""

    def connect(self):
        self.sock, theirs = socket.socketpair()
        self.sock.settimeout(120)
        self.process = subprocess.Popen(
            [stepctl, "-s", sock, "metrics", "--http"], stdin=theirs,
            stdout=theirs, stderr=subprocess.PIPE)
        theirs.close()


def ask(method, path, want, code=0, **keys):
    c = Connection("localhost")
    c.request(method, path, **keys)
    r = c.getresponse()
    body = r.read().decode()
    assert r.status == want, (r.status, body)
    assert r.getheader("Connection") == "close"
    c.close()
    err = c.process.communicate()[1]
    assert c.process.returncode == code, (c.process.returncode, err)
    return r, body


if sock.endswith("none"):
    ask("GET", "/metrics", 503, 69)
    sys.exit()
r, text = ask("GET", "/metrics", 200)
assert r.getheader("Content-Type").startswith("text/plain; version=0.0.4")
assert int(r.getheader("Content-Length")) == len(text.encode())
assert "\nstepd_time_to_first_token_seconds_count 1\n" in text, text
assert '\nstepd_tokens_total{kind="completion"} 3\n' in text, text
assert text.endswith("\n")
assert ask("GET", "/metrics?x=1", 200)[1].startswith("# HELP ")
assert ask("HEAD", "/metrics", 200)[1] == ""
ask("GET", "/", 404)
r, _ = ask("POST", "/metrics", 405, body=b"x" * 100000)
assert r.getheader("Allow") == "GET"

# What is not HTTP, too much of it, and nothing at all.
for data, answer in ((b"hello\r\n\r\n", b"HTTP/1.1 400 "),
                     (b"GET / HTTP/1.1\r\nX: " + b"y" * 20000, b""),
                     (b"GET / HT", b"")):
    c = Connection("localhost")
    c.connect()
    try:
        c.sock.sendall(data)
        c.sock.shutdown(socket.SHUT_WR)
        got = b"".join(iter(lambda: c.sock.recv(4096), b""))
    except (BrokenPipeError, ConnectionResetError):
        got = b""
    assert got.startswith(answer) and bool(got) == bool(answer), (data, got)
    c.process.communicate()
    assert c.process.returncode == (0 if answer else 76)
END
"$PYTHON3" "$tmp/scrape.py" "$STEPCTL" "$sock"
"$PYTHON3" "$tmp/scrape.py" "$STEPCTL" "$tmp/none"
stop_stepd
