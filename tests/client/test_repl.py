#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
"""stepctl on a terminal: the REPL, top and the progress line, driven through a
pseudo-terminal against fake_stepd.py. Nothing here waits for time to pass: each
step waits for what must appear."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

try:
    import msgpack  # noqa: F401
except ImportError:
    print("SKIP: python3 has no msgpack")
    sys.exit(77)

SRCDIR = os.environ.get("srcdir", os.path.join(os.path.dirname(__file__),
                                               "../.."))
STEPCTL = os.path.join(os.environ.get("builddir", "."), "client/stepctl")
STEPD = os.path.join(os.environ.get("builddir", "."), "daemon/stepd")
HANG = int(os.environ.get("WAIT_SECONDS", 120))  # seconds; only a hang reaches it


class Fake:
    """The daemon that does what it is told."""

    def __init__(self, folder, name="fake", *keys):
        self.path = os.path.join(folder, name + ".sock")
        self.log = os.path.join(folder, name + ".log")
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(SRCDIR,
                                          "tests/client/fake_stepd.py"),
             self.path, self.log, *keys], stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"listening\n"

    def requests(self, op="generate"):
        with open(self.log, encoding="utf-8") as f:
            return [r for r in map(json.loads, f) if r.get("op") == op]

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Terminal:
    """stepctl in a terminal of its own."""

    def __init__(self, *args, program=STEPCTL, term="xterm", size=(24, 80),
                 **env):
        self.seen = ""  # since the last expect
        self.all = ""
        self.dumb = term == "dumb"
        full = {k: v for k, v in os.environ.items()
                if k not in ("NO_COLOR", "STEPCTL_HISTORY")}
        full.update({"TERM": term, "LC_ALL": "C.UTF-8", "HOME": "/dev/null/home",
                     "XDG_STATE_HOME": "", **env})
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(program, [program, *args], full)
        self.resize(*size)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ,
                    struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text):
        data = text.encode() if isinstance(text, str) else text
        while data:
            # Both directions of a terminal have bounds.
            _, w, _ = select.select([], [self.fd], [], 0)
            if w:
                data = data[os.write(self.fd, data[:256]):]
            self.pump(0)

    def pump(self, timeout):
        r, _, _ = select.select([self.fd], [], [], timeout)
        if not r:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # EIO: the other side has closed
            data = b""
        text = data.decode(errors="replace")
        self.seen += text
        self.all += text
        return bool(data)

    def expect(self, pattern):
        """Until the pattern is seen; what came after it is left to be seen."""
        end = time.monotonic() + HANG
        while True:
            m = re.search(pattern, self.seen, re.S)
            if m:
                self.seen = self.seen[m.end():]
                return m
            assert time.monotonic() < end, f"no {pattern!r} in {self.seen!r}"
            assert self.pump(1), f"ended without {pattern!r}: {self.all!r}"

    def prompt(self):
        """A prompt, and not one that is only drawn again."""
        return self.expect(r"> $" if self.dumb else r"\x1b\[\?2004h> ")

    def say(self, line, pattern):
        """A line, what is seen then, and the next prompt."""
        self.send(line + "\r")
        m = self.expect(pattern)
        self.prompt()
        return m

    def status(self):
        """Its exit status, once it has ended."""
        end = time.monotonic() + HANG
        while self.pump(1):
            assert time.monotonic() < end, f"does not end: {self.all!r}"
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)

    def quit(self):
        self.send("\x04")
        got = self.status()
        assert got == 0, f"exit status {got}: {self.all!r}"


def content(request, i=-1):
    return request["messages"][i]["content"]


def repl(fake, *args, **keys):
    t = Terminal("-s", fake.path, "chat", *args, **keys)
    t.expect("fake-model. /help lists the commands, Ctrl-D leaves")
    t.prompt()
    return t


def test_a_conversation(fake, _):
    t = repl(fake)
    t.send("Hello there\r")
    t.expect("Hello there\r\n")  # the answer is the question
    t.prompt()
    t.say("And again", "And again\r\n")
    t.quit()
    first, second = fake.requests()[-2:]
    assert [m["role"] for m in first["messages"]] == ["user"]
    assert second["messages"] == [
        {"role": "user", "content": "Hello there"},
        {"role": "assistant", "content": "Hello there"},
        {"role": "user", "content": "And again"}], second


def test_reasoning_is_dimmed_and_kept(fake, _):
    t = repl(fake)
    t.say("think:", "\x1b\\[2mhmm\x1b\\[0m\r\n\r\n42\r\n")
    t.send("x\r")
    t.prompt()
    t.quit()
    assert fake.requests()[-1]["messages"][1] == {
        "role": "assistant", "content": "42", "reasoning_content": "hmm"}
    assert "reading the prompt: 1 of 20 tokens" in t.all


def test_no_colour(fake, _):
    for keys in ({"NO_COLOR": "1"}, {"term": "dumb"}):
        t = repl(fake, **keys)
        t.say("think:", "hmm\r\n\r\n42\r\n")
        t.quit()
        assert "\x1b[2m" not in t.all
        if "term" in keys:
            assert "\x1b" not in t.all, t.all


def test_a_pasted_block_is_one_prompt(fake, _):
    t = repl(fake)
    assert "\x1b[?2004h" in t.all
    n = len(fake.requests())
    # Carriage returns are what terminals send; the last line end and what is
    # no text are left out.
    t.send("see \x1b[200~def f():\r\treturn '\x07\u00e9\u4e2d'\nf()\r"
           "\x1b[201~")
    t.say("", r"\?2004lsee def f\(\):\r\n")
    assert t.all.count("\x1b[?2004l") == t.all.count("\x1b[?2004h") - 1
    big = "".join(f"line {i} of a long file\n" for i in range(500))
    t.send("\x1b[200~" + big + "\x1b[201~\r")
    t.expect("\x1b\\[\\?2004l.*line 499 of a long file\r\n")
    t.prompt()
    t.quit()
    requests = fake.requests()[n:]
    assert len(requests) == 2, requests
    assert content(requests[0]) == "see def f():\n\treturn '\u00e9\u4e2d'\nf()"
    assert content(requests[1]) == big[:-1]


def test_a_trailing_backslash_goes_on(fake, _):
    for term in ("xterm", "dumb"):
        t = repl(fake, term=term)
        t.send("one\\\r")
        t.expect(r"\.\.\. ")
        t.send("two\\\r")
        t.expect(r"\.\.\. ")
        t.say("three\\\\", "three")
        t.quit()
        assert content(fake.requests()[-1]) == "one\ntwo\nthree\\\\"


def test_interrupt_ends_the_answer_and_not_the_program(fake, _):
    t = repl(fake)
    t.send("hang:\r")
    t.expect(r"\?2004la")
    t.send("\x03")
    t.prompt()
    t.say("next", "next\r\n")
    # What was said before it stays.
    assert fake.requests()[-1]["messages"][:2] == [
        {"role": "user", "content": "hang:"},
        {"role": "assistant", "content": "a"}]
    assert fake.requests("cancel")
    # A daemon that does not hear it, and an impatient user.
    t.send("stubborn:\r")
    t.expect(r"\?2004la")
    t.send("\x03\x03\x03")
    t.prompt()
    t.say("after", "after\r\n")
    # On a line it empties the line.
    t.send("do not ask this")
    t.expect("do not ask this")
    t.send("\x03")
    t.prompt()
    t.say("but this", "but this\r\n")
    t.quit()
    assert content(fake.requests()[-1]) == "but this"


def test_commands(fake, folder):
    t = repl(fake, "--system", "Be brief.")
    t.send("/help\r")
    for name in ("/help", "/reset", "/system", "/session", "/save", "/stats",
                 "/quit"):
        t.expect(name + " ")
    t.prompt()
    t.say("/system", "system message: Be brief.")
    t.say("first", "first\r\n")
    assert [m["role"] for m in fake.requests()[-1]["messages"]] == [
        "system", "user"]
    t.say("/stats", "statistics after an answer: on")
    t.say("second",
          r"12 tokens in 0.50 s, 24.0 tokens/s.*6 of 15 drafts accepted")
    saved = os.path.join(folder, "saved conversation.json")
    t.say(f"/save {saved}  ", "5 messages in ")
    with open(saved, encoding="utf-8") as f:
        assert [m["content"] for m in json.load(f)["messages"]] == [
            "Be brief.", "first", "first", "second", "second"]
    assert os.stat(saved).st_mode & 0o777 == 0o600
    t.say("/save /nowhere/at/all", "/nowhere/at/all: No such file")
    t.say("/save", "into which file")
    t.say("/session", "session: none")
    t.say("/session .bad", "does not begin with a dot")
    t.say("/session mine", "unsupported: this daemon keeps no sessions")
    t.say("/system -", "")
    t.say("/reset", "begins anew")
    t.say("third", "third\r\n")
    assert [content(fake.requests()[-1], i) for i in (0, -1)] == [
        "third", "third"]
    t.say("/frobnicate", "/frobnicate: no such command")
    t.say(" /not a command", "not a command\r\n")
    assert content(fake.requests()[-1]) == " /not a command"
    n = len(fake.requests())
    t.send("   \r")
    t.prompt()
    t.send("/quit\r")
    assert t.status() == 0
    assert len(fake.requests()) == n


def test_save_holds_what_was_sent(fake, folder):
    """Tools, effort and thinking too: render shows the same prompt."""
    tools = [{"type": "function", "function": {
        "name": "weather", "parameters": {"type": "object"}}}]
    file = os.path.join(folder, "tools.json")
    with open(file, "w", encoding="utf-8") as f:
        json.dump(tools, f)
    saved = os.path.join(folder, "with tools.json")
    more = {"tools": tools, "reasoning_effort": "low", "thinking": False}
    t = repl(fake, "--tools", file, "--reasoning", "low", "--no-thinking")
    t.say("sunny", "sunny\r\n")
    t.say(f"/save {saved}", "2 messages in ")
    t.quit()
    asked = fake.requests()[-1]
    assert {key: asked[key] for key in more} == more
    with open(saved, encoding="utf-8") as f:
        assert json.load(f) == {"messages": [
            {"role": "user", "content": "sunny"},
            {"role": "assistant", "content": "sunny"}], **more}


def test_sessions_send_what_is_new(_, folder):
    fake = Fake(folder, "sessions", "sessions=old",
                "have=key.session,key.append,op.session_list")
    t = repl(fake, "--session", "mine", "--system", "Be brief.")
    assert "mine: a new session" in t.all
    # What got no answer has not begun it.
    t.say("error:busy", "stepctl: busy: ")
    for text in ("one", "two"):
        t.say(text, text + "\r\n")
    t.say("/session old", "old: the session goes on")
    t.say("three", "three\r\n")
    t.say("/session mine", "mine: the session goes on")
    t.say("four", "four\r\n")
    t.say("/system Be long.", "")
    t.say("five", "five\r\n")
    t.say("/session -", "")
    t.say("six", "six\r\n")
    t.quit()
    fake.stop()
    got = [(r.get("session"), r.get("append"),
            [m["content"] for m in r["messages"]]) for r in fake.requests()]
    assert got == [("mine", False, ["Be brief.", "error:busy"]),
                   ("mine", False, ["Be brief.", "one"]),
                   ("mine", True, ["two"]),
                   ("old", True, ["three"]),
                   ("mine", True, ["four"]),
                   ("mine", True, ["Be long.", "five"]),
                   (None, None, ["Be long.", "six"])], got


def test_sessions_of_the_daemon(_, folder):
    path = os.path.join(folder, "real.sock")
    daemon = subprocess.Popen(
        [STEPD, "--config", "/dev/null", "--set", "kv_memory=256M", "--model",
         os.path.join(SRCDIR, "tests/data/step-tiny"), "--socket", path],
        stderr=subprocess.DEVNULL)
    try:
        subprocess.run([STEPCTL, "-s", path, "ping", "--wait", str(HANG)],
                       check=True, stdout=subprocess.DEVNULL)

        def chat(*args):
            t = Terminal("-s", path, "chat", "--temperature", "0", *args)
            t.expect("Ctrl-D leaves")
            t.prompt()
            return t

        def tokens(name):
            out = subprocess.run(
                [STEPCTL, "-s", path, "sessions", "list", "--json"],
                check=True, stdout=subprocess.PIPE).stdout
            return [s["tokens"] for e in map(json.loads, out.splitlines())
                    for s in e.get("sessions", []) if s["name"] == name]

        # One is begun ...
        t = chat("--session", "talk")
        t.say("What is the capital of Kenya?", "is Nairobi\\.")
        first, = tokens("talk")
        t.say("What is 7 plus 8?", "is 15\\.")
        second, = tokens("talk")
        assert second > first
        t.quit()
        # ... and goes on in another program, and in a pipe.
        t = chat("--stats")
        t.say("/session talk", "talk: the session goes on")
        t.say("What is 3 plus 4?", r"is 7\..* [1-9][0-9]* of them cached")
        third, = tokens("talk")
        assert third > second
        t.say("/session", "session: talk")
        t.say("/reset", "begins anew")
        t.say("What is 2 plus 2?", "is 4\\.")
        assert tokens("talk") == [third]
        t.quit()
        answer = subprocess.run(
            [STEPCTL, "-s", path, "chat", "--temperature", "0", "--session",
             "talk", "--append", "What is 7 plus 8?"], check=True,
            stdout=subprocess.PIPE).stdout
        assert b"is 15." in answer, answer
    finally:
        daemon.terminate()
        assert daemon.wait() == 0


def test_results_of_calls_are_asked_for(fake, _):
    t = repl(fake)
    t.send("call:Let me see.\r")
    t.expect(r"Let me see.\r\nget_time\(city=\"Oslo\", n=\[1, null\]\)\r\n"
             r"f\(\)\r\n")
    t.expect(r"get_time\(.*\) = \r\n")
    t.prompt()
    t.say("9 o'clock", r"f\(\) = \r\n")
    t.say("done", "done\r\n.*done\r\n")  # the answer is the last result
    t.say("and now", "and now\r\n.*and now\r\n")
    t.quit()
    calls, last = fake.requests()[-2:]
    assert calls["messages"] == last["messages"][:4]
    assert [m["role"] for m in last["messages"]] == [
        "user", "assistant", "tool", "tool", "assistant", "user"]
    made = last["messages"][1]["tool_calls"]
    assert [c["id"] for c in made] == ["call_0a", "call_0c"]
    assert made[0]["function"]["arguments"] == \
        '{"city": "Oslo", "n": [1, null]}'
    assert last["messages"][2] == {
        "role": "tool", "tool_call_id": "call_0a", "content": "9 o'clock"}
    # Nobody answers: the question is taken back.
    t = repl(fake)
    t.send("call:\r")
    t.expect(r"get_time\(.*\) = \r\n")
    t.prompt()
    t.quit()


def test_errors_take_the_question_back(fake, _):
    t = repl(fake)
    t.say("error:busy", "stepctl: busy: ")
    t.send("\x1b[A")  # it is in the history still
    t.expect("error:busy")
    t.say("\x15fine", "fine\r\n")
    t.quit()
    assert [m["content"] for m in fake.requests()[-1]["messages"]] == ["fine"]


def test_a_daemon_that_comes_back(_, folder):
    fake = Fake(folder, "back")
    t = repl(fake)
    t.say("one", "one\r\n")
    fake.stop()
    os.unlink(fake.path)
    t.say("two", "stepctl: .*\r\n")
    t.say("three", "no daemon listens there")
    fake = Fake(folder, "back")
    t.say("four", "four\r\n")
    t.quit()
    fake.stop()
    assert [m["content"] for m in fake.requests()[-1]["messages"]] == [
        "one", "one", "four"]


def test_the_history_is_kept(fake, folder):
    state = os.path.join(folder, "state")
    path = os.path.join(state, "stepd", "history")

    def ask(*lines):
        t = repl(fake, XDG_STATE_HOME=state)
        for line in lines:
            t.send(line + "\r")
            t.prompt() if not line.endswith("\\") else t.expect(r"\.\.\. ")
        t.quit()
        return content(fake.requests()[-1])

    ask("a secret question", "of two\\", "lines")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
    assert ask("\x10\x10") == "a secret question"  # Ctrl-P: the one before
    assert ask("\x10\x10") == "of two\nlines"
    t = Terminal("-s", fake.path, "chat", XDG_STATE_HOME=state,
                 STEPCTL_HISTORY="")
    t.prompt()
    t.send("not kept\r")
    t.prompt()
    t.quit()
    with open(path, encoding="utf-8") as f:
        assert "kept" not in f.read()


def test_wide_characters_and_resizing(fake, _):
    t = repl(fake, size=(24, 20))
    # Twelve columns each; back over one, and it is gone whole.
    t.send("\u4e2d\u6587\u5b57\u7b26\u5bbd\u5ea6")
    t.expect("\u5ea6")
    t.resize(24, 40)
    t.send("\x7f\x7f\U0001f600e\u0301\r")
    t.prompt()
    assert content(fake.requests()[-1]) == \
        "\u4e2d\u6587\u5b57\u7b26\U0001f600e\u0301"
    t.resize(5, 10)
    t.send("a line that is longer than this terminal is wide")
    t.expect("wide")
    t.resize(50, 100)
    t.send("\x01Here is \r")  # Ctrl-A: to the beginning
    t.expect("this terminal is wide\r\n")
    t.prompt()
    t.quit()
    assert content(fake.requests()[-1]) == \
        "Here is a line that is longer than this terminal is wide"


def test_the_progress_line_fits_the_terminal(fake, _):
    t = repl(fake, size=(24, 20))
    t.say("think:", "42\r\n")
    t.quit()
    line = re.search("\r(reading the prompt[^\r]*)\r", t.all)
    assert line and len(line.group(1)) < 20, t.all


def test_signals(fake, _):
    for sig in (signal.SIGTERM, signal.SIGHUP):
        t = repl(fake)
        os.kill(t.pid, sig)
        assert t.status() == 128 + sig
        t = repl(fake)
        t.send("hang:\r")
        t.expect(r"\?2004la")
        os.kill(t.pid, sig)
        assert t.status() == 128 + sig
        assert "\x1b[?2004h" not in t.all[t.all.rindex("\x1b[?2004l"):]


def test_stopped_and_continued(fake, _):
    t = Terminal("-c", f"set -m; '{STEPCTL}' -s '{fake.path}' chat; "
                 "echo stopped; read -r; fg; echo \"status $?\"",
                 program="bash")
    t.prompt()
    t.send("half a ")
    t.expect("half a ")
    t.send("\x1a")
    t.expect(r"\x1b\[\?2004l.*stopped\r\n")
    t.send("\r")
    t.expect("half a ")
    t.say("line", "half a line\r\n")
    t.send("\x04")
    t.expect("status 0")
    assert t.status() == 0
    assert content(fake.requests()[-1]) == "half a line"


def test_top_is_a_table_that_fits(fake, _):
    for term in ("xterm", "dumb"):
        t = Terminal("-s", fake.path, "top", "--interval", "0.1", term=term,
                     size=(5, 30))
        t.expect("fake-model  ready")
        t.expect("fake-model  ready")
        assert ("\x1b[H\x1b[2J" in t.all) == (term != "dumb")
        t.send("\x03")
        assert t.status() == 0
        for line in t.all.split("\r\n"):
            line = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line)
            assert len(line) < 32, line


def test_no_daemon(_, folder):
    t = Terminal("-s", os.path.join(folder, "nobody.sock"), "chat")
    t.expect("no daemon listens there")
    assert t.status() == 69


def main():
    names = sys.argv[1:]
    # A socket's path holds 107 bytes.
    short = "/tmp" if len(tempfile.gettempdir()) > 60 else None
    with tempfile.TemporaryDirectory(prefix="stepd-repl.", dir=short) as folder:
        # libedit keeps its copies of the names given to EL_ADDFN for ever.
        known = os.path.join(folder, "leaks")
        with open(known, "w", encoding="utf-8") as f:
            f.write("leak:wcsdup\n")
        os.environ["LSAN_OPTIONS"] = f"suppressions={known}:" \
            "print_suppressions=0"
        fake = Fake(folder)
        try:
            for name, fn in list(globals().items()):
                if name.startswith("test_") and (not names or name in names):
                    print(name, flush=True)
                    fn(fake, folder)
        finally:
            fake.stop()


if __name__ == "__main__":
    main()
