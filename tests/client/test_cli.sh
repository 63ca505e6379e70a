#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# stepctl against a daemon that does what it is told (fake_stepd.py): options,
# streams, exit codes, prompts from everywhere, signals, readers that go away.

PYTHON3=${PYTHON3:-/usr/bin/python3}
# shellcheck source-path=SCRIPTDIR source=../e2e/functions.sh
. "$(dirname "$0")/../e2e/functions.sh"

requires "$PYTHON3" -c 'import msgpack'
[ -x "$STEPCTL" ] || fail "stepctl is not built"
cd "$tmp"

# fake NAME [KEY=VALUE]...: starts one on $tmp/NAME.sock, log $tmp/NAME.log.
fake()
{
    local fd line name=$1

    shift
    exec {fd}< <(exec "$PYTHON3" "$srcdir/tests/client/fake_stepd.py" \
        "$tmp/$name.sock" "$tmp/$name.log" "$@" 2>"$tmp/$name.err")
    cleanup_fn kill "$!"
    read -r line <&"$fd"
    [ "$line" = listening ] || fail "the fake daemon did not start"
    sock=$tmp/$name.sock
}

# check STATUS COMMAND...: runs it, stdout to out, stderr to err.
check()
{
    local want=$1 got=0

    shift
    "$@" >out 2>err || got=$?
    [ "$got" -eq "$want" ] ||
        fail "exit status $got instead of $want: $* ($(cat err))"
}

is()
{
    [ "$1" = "$2" ] || fail "'$1' instead of '$2'"
}

# file_is FILE TEXT: byte for byte; TEXT as printf's %b.
file_is()
{
    printf '%b' "$2" | cmp -s - "$1" || fail "$1 is '$(cat "$1")', not '$2'"
}

silent()
{
    [ ! -s err ] || fail "stderr is not empty: $(cat err)"
}

# sent PYTHON: a truth about r, the last request of op generate in the log.
sent()
{
    "$PYTHON3" - "$sock" "$1" <<'END' || fail "not so: $1"
import json, sys
log = [json.loads(line) for line in open(sys.argv[1][:-5] + ".log")]
log = [r for r in log if r.get("op") not in (None, "hello", "cancel")]
r = log[-1]
sys.exit(0 if eval(sys.argv[2]) else print(r) or 1)
END
}

# on_tty COMMAND...: in a pseudo terminal; what it shows goes to out.
on_tty()
{
    "$PYTHON3" -c 'import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' "$@" \
        </dev/null | tr -d '\r' >out
}

# signalled SIGNALS COMMAND...: sends them one by one, the first when the fake
# has logged a generate, each further one when it has logged something more;
# prints the exit status as a shell has it.
signalled()
{
    "$PYTHON3" - "$tmp/main.log" "$@" <<'END'
import os, signal, subprocess, sys
log, names, command = sys.argv[1], sys.argv[2].split(), sys.argv[3:]
size = os.path.getsize(log)
p = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                     stdout=open("out", "wb"), stderr=open("err", "wb"),
                     preexec_fn=lambda: signal.signal(signal.SIGINT,
                                                      signal.SIG_DFL))
want = b'"generate"'
for name in names:
    while want not in open(log, "rb").read()[size:]:
        if p.poll() is not None:
            break
    want = b'"cancel"'
    p.send_signal(getattr(signal, "SIG" + name))
status = p.wait(60)
print(status if status >= 0 else 128 - status)
END
}

fake main

# ---- streams and text ------------------------------------------------------

check 0 ctl chat 'Hello, World'
file_is out 'Hello, World\n'
silent
sent 'r["messages"] == [{"role": "user", "content": "Hello, World"}]'
sent 'set(r) == {"id", "op", "messages"}'

check 0 ctl complete 'Once upon'
file_is out 'Once upon'
silent
sent 'r["prompt"] == "Once upon" and set(r) == {"id", "op", "prompt"}'

check 0 ctl chat --no-stream 'Hello'
file_is out 'Hello\n'

check 0 ctl chat think:
file_is out '42\n'
silent
check 0 ctl chat --show-reasoning think:
file_is out 'hmm\n\n42\n'
check 0 ctl chat --show-reasoning --no-stream think:
file_is out 'hmm\n\n42\n'

check 0 ctl chat --ids think:
file_is out '1 2 3 4 5\n'
sent 'r["want_ids"] is True'

# A pipe gets the bytes as they are, a terminal no control characters.
check 0 ctl complete control:
file_is out 'a\x1b[31mb\xc2\x9b\xc3\xa9\n'
TERM=xterm on_tty "$STEPCTL" -s "$sock" complete control:
file_is out 'a^[[31mb?\xc3\xa9\n'

# On a terminal reasoning is shown, dimmed where that is wanted.
TERM=xterm on_tty "$STEPCTL" -s "$sock" chat think:
grep -q $'\033\\[2mhmm\033\\[0m' out || fail "reasoning is not dimmed"
grep -q '^42$' out || fail "no answer on the terminal"
grep -q 'reading the prompt: 1 of 20' out || fail "no progress on the terminal"
NO_COLOR=1 TERM=xterm on_tty "$STEPCTL" -s "$sock" chat think:
! grep -q $'\033' out || fail "colours in spite of NO_COLOR"
TERM=dumb on_tty "$STEPCTL" -s "$sock" chat think:
! grep -q $'\033' out || fail "colours on a dumb terminal"

check 0 ctl chat --stats think:
file_is out '42\n'
grep -q '^12 tokens in 0.50 s, 24.0 tokens/s' err || fail "$(cat err)"
grep -q '6 of 15 drafts accepted (40.0 %), 2.00 tokens a step' err ||
    fail "$(cat err)"
grep -q 'seed 18446744073709551615$' err || fail "$(cat err)"

# ---- --json ----------------------------------------------------------------

check 0 ctl chat --json think:
silent
"$PYTHON3" - out <<'END' || fail "$(cat out)"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
assert [e["event"] for e in events] == [
    "accepted", "progress", "news_from_the_future", "delta", "delta", "delta",
    "delta", "done"], events
assert events[-1]["seed"] == 2**64 - 1
assert events[3] == {"id": 2, "event": "delta", "kind": "reasoning",
                     "text": "hm", "ids": [1]}, events[3]
END
check 0 ctl chat --json --no-stream think:
"$PYTHON3" - out <<'END' || fail "$(cat out)"
import json, sys
(e,) = [json.loads(line) for line in open(sys.argv[1])]
assert e["event"] == "done" and e["content"] == "42" and e["seed"] == 2**64 - 1
assert e["reasoning"] == "hmm"
END
check 75 ctl chat --json error:busy
is "$(wc -l <out)" 3

# ---- the prompt --------------------------------------------------------------

printf 'from stdin\n' | check 0 ctl chat
sent 'r["messages"][0]["content"] == "from stdin"'
printf 'from stdin\n\n' | check 0 ctl chat -
sent 'r["messages"][0]["content"] == "from stdin\n"'
printf 'from stdin\n' | check 0 ctl complete
sent 'r["prompt"] == "from stdin\n"'
printf 'a\0b' | check 0 ctl complete
sent 'r["prompt"] == "a\0b"'
printf '\xff\xfe' | check 0 ctl complete
sent 'r["prompt"] == {"bytes": "fffe"}'
printf '\xff' | check 64 ctl chat
grep -q 'not UTF-8' err || fail "$(cat err)"

# With a PROMPT standard input is not read.
printf 'one\ntwo\nthree\n' | while read -r line; do
    ctl chat "<$line>" || exit 1
done >out || fail "a loop over lines ended early"
file_is out '<one>\n<two>\n<three>\n'

printf 'first file\n' >a
printf 'second file\n' >b
check 0 ctl chat --file a --file b 'Compare'
sent 'r["messages"][0]["content"] == "Compare\nfirst file\nsecond file"'
printf 'Compare\n' | check 0 ctl complete --file a
sent 'r["prompt"] == "Compare\nfirst file\n"'
check 66 ctl chat --file missing x
check 66 ctl chat --file . x
check 64 ctl chat ''
check 64 ctl chat </dev/null
check 64 ctl chat two words
printf '' | check 0 ctl complete
sent 'r["prompt"] == ""'

# ---- every option becomes its key --------------------------------------------

check 0 ctl chat --system 'Be brief.' --reasoning low --no-thinking \
    --max-tokens 5 --temperature 0.5 --top-p=0.9 --top-k 40 --min-p 0.05 \
    --seed 18446744073709551615 --stop END --stop $'\n' \
    --repetition-penalty 1.1 --presence-penalty -0.5 --frequency-penalty 1 \
    --logprobs 3 --priority -2 --timeout 1.5 --drafts 2 Hi
sent 'r["messages"][0] == {"role": "system", "content": "Be brief."}'
sent '{k: v for k, v in r.items() if k not in ("id", "op", "messages")} == {
    "reasoning_effort": "low", "thinking": False, "max_tokens": 5,
    "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05,
    "seed": 2**64 - 1, "stop": ["END", "\n"], "repetition_penalty": 1.1,
    "presence_penalty": -0.5, "frequency_penalty": 1.0, "logprobs": 3,
    "priority": -2, "timeout_ms": 1500, "drafts": 2}'
echo '[{"type": "function", "function": {"name": "f", "z": 1, "a": 2.5}}]' >t
check 0 ctl chat --tools t Hi
sent 'r["tools"] == [{"type": "function", "function": {"name": "f", "z": 1,
    "a": 2.5}}] and list(r["tools"][0]["function"]) == ["name", "z", "a"]'

# Calls are printed as one would write them, whole ones only.
check 0 ctl chat --tools t 'call:Let me see.'
file_is out 'Let me see.\nget_time(city="Oslo", n=[1, null])\nf()\n'
check 0 ctl chat --no-stream --tools t 'call:'
file_is out 'get_time(city="Oslo", n=[1, null])\nf()\n'
check 0 ctl chat --json --no-stream --tools t 'call:x'
"$PYTHON3" -c 'import json
r = json.load(open("out"))
assert r["finish_reason"] == "tool_calls" and r["content"] == "x"
assert [c["id"] for c in r["tool_calls"]] == ["call_0a", "call_0c"]
assert r["tool_calls"][1]["function"] == {"name": "f", "arguments": "{}"}' ||
    fail "$(cat out)"
check 0 ctl chat --json --tools t 'call:x'
is "$(grep -c '"call_begin"' out)" 2
is "$(grep -c '"call_dropped"' out)" 1

for bad in '--max-tokens x' '--max-tokens 1.5' '--temperature warm' \
    '--temperature nan' '--seed -1' '--top-k' '--timeout -1' '--frobnicate' \
    '--drafts 99999999999999999999'; do
    # shellcheck disable=SC2086 # words, on purpose
    check 64 ctl chat Hi $bad
    grep -q 'stepctl chat --help' err || fail "no hint: $(cat err)"
done
check 64 ctl ping -xy
grep -q 'unknown option -x$' err || fail "$(cat err)"
check 64 ctl ping --json=yes
grep -q 'unknown option --json=yes$' err || fail "$(cat err)"
check 64 ctl ping --wait 1e300
# No abbreviations: an option that is added would change what they mean.
for short in '--max-tok 5' '--max-tok=5' '--no-think' '--hel' '--temp 0'; do
    # shellcheck disable=SC2086 # words, on purpose
    check 64 ctl chat Hi $short
    grep -q "unknown option ${short%% *}: spell it out: --" err ||
        fail "$short: $(cat err)"
done
check 0 ctl chat --stop --max-tok --stop=--stop Hi
sent 'r["stop"] == ["--max-tok", "--stop"]'
head -c 17000000 /dev/zero | tr '\0' a >long
check 65 ctl complete <long
check 65 ctl chat <long
rm long
if [ -c /dev/full ]; then
    for line in --help --version 'chat --help' 'chat Hi'; do
        # shellcheck disable=SC2086 # words, on purpose
        expect_status 74 ctl $line >/dev/full 2>err
        grep -q 'standard output: No space' err || fail "$line: $(cat err)"
    done
fi
echo '{broken' >t
check 64 ctl chat --tools t Hi
grep -q '^stepctl: t: .* at byte 1$' err || fail "$(cat err)"
check 64 ctl chat --json-schema t Hi
grep -q '^stepctl: t: .* at byte 1$' err || fail "$(cat err)"
# A file is one value: it cannot bring keys of the request along.
echo 'true, "type": "text"' >t
check 64 ctl chat --json-schema t Hi
grep -q '^stepctl: t: ' err || fail "$(cat err)"
echo true >t
check 64 ctl complete --json-schema t --choice A Hi
grep -q 'choice and --json-schema: one of them' err || fail "$(cat err)"
for bias in '' 5 5= =5 x=1 5=x '5=1 ' 5=nan 5=1e999 -5=1; do
    check 64 ctl complete --logit-bias "$bias" Hi
    grep -qF "takes ID=X, not '$bias'" err || fail "$bias: $(cat err)"
done

# What a later version brings is parsed, and answered without being sent.
n=$(grep -c '"generate"' main.log)
echo '{"type": "object"}' >s
for later in 'chat --session a' 'chat --session a --append' \
    'chat --tool-choice required' 'chat --tool-choice f' \
    'chat --json-schema s' 'complete --choice A --choice B' \
    'chat --logprobs-mode raw' 'complete --logit-bias 5=1 --logit-bias 6=-.5'; do
    # shellcheck disable=SC2086 # words, on purpose
    check 69 ctl $later Hi
    grep -q 'unsupported: this daemon does not know the key' err ||
        fail "$later: $(cat err)"
done
is "$(grep -c '"generate"' main.log)" "$n"
check 69 ctl sessions list
grep -q unsupported err || fail "$(cat err)"

# ---- exit codes ----------------------------------------------------------------

seen=' disconnected '
while read -r code status; do
    seen+="$code "
    check "$status" ctl chat "error:$code"
    file_is out 'Hel\n'
    grep -q "^stepctl: $code: temperature must be from 0 to 100$" err ||
        [ "$code" = nonsense ] || fail "$(cat err)"
done <<'END'
bad_request 64
unknown_op 64
too_long 65
corrupt 65
not_found 66
unavailable 69
unsupported 69
internal 70
nonsense 70
no_memory 71
busy 75
draining 75
bad_frame 76
version 76
denied 77
END
# Every code and every finish reason of the protocol is in these two tables.
for code in $(sed -n 's/^ *WIRE_E_\([A-Z_]*\) = -.*/\1/p' \
    "$srcdir/client/wire.h" | tr '[:upper:]' '[:lower:]'); do
    [[ $seen == *" $code "* ]] || fail "the exit code of $code is not tested"
done
seen=' '
while read -r reason status note; do
    seen+="$reason "
    # shellcheck disable=SC2086 # words, on purpose
    check "$status" ctl chat $note "finish:$reason"
    file_is out 'Hello\n'
done <<'END'
stop 0
tool_calls 0
length 0
length 65 --strict
timeout 75
cancelled 75
END
for reason in $(sed -n '/finish_reason: "stop"/,/usage/p' \
    "$srcdir/client/wire.h" | grep -o '"[a-z_]*"' | tr -d '"'); do
    [[ $seen == *" $reason "* ]] || fail "the exit code of $reason is not tested"
done
check 0 ctl chat finish:length
grep -q 'cut at the limit' err || fail "no note: $(cat err)"
check 69 ctl chat close:
file_is out 'Hel\n'
check 69 ctl chat garbage:ffffffff
grep -q 'protocol was broken' err || fail "$(cat err)"
check 69 ctl chat garbage:0000000190
grep -q 'protocol was broken' err || fail "$(cat err)"

fake version mode=version
check 76 ctl chat Hi
fake denied mode=denied
check 77 ctl chat Hi
grep -q 'uid 1 is not in allow_users' err || fail "$(cat err)"
fake close mode=close
check 69 ctl chat Hi
fake lack lack=op.tokenize
check 69 ctl tokenize Hi
sock=$tmp/main.sock

# ---- the other commands --------------------------------------------------------

check 0 ctl tokenize 'Hi!'
file_is out '72 105 33\n'
printf 'Hi\n' | check 0 ctl tokenize
file_is out '72 105 10\n'
check 0 ctl tokenize ''
file_is out '\n'
head -c 2500 /dev/zero | tr '\0' a | check 0 ctl tokenize
is "$(wc -w <out)" 2500
check 0 ctl detokenize 72 105
file_is out 'Hi'
check 0 ctl detokenize 255 0
file_is out '\xff\0'
check 0 ctl detokenize '[72, 105]'
file_is out 'Hi'
printf 'round trip\n' | ctl tokenize | check 0 ctl detokenize
file_is out 'round trip\n'
check 64 ctl detokenize 7x
check 64 ctl detokenize -- -1

cat >r.json <<'END'
{"messages": [{"role": "user", "content": "z", "a": 0.1}], "thinking": false}
END
check 0 ctl render r.json
file_is out '{"messages": [{"role": "user", "content": "z", "a": 0.1}], "thinking": false}'
check 0 ctl render --ids - <r.json
file_is out '0 7 8\n'
echo '[1]' >r.json
check 65 ctl render r.json
echo '{"a": 1, "a": 2}' >r.json
check 65 ctl render r.json
check 66 ctl render missing.json
check 64 ctl render

check 0 ctl status
grep -Eq '^state +ready$' out || fail "$(cat out)"
grep -Eq '^load.done +5$' out || fail "$(cat out)"
grep -Eq '^jobs.1.job +4$' out || fail "$(cat out)"
check 0 ctl status --json
is "$(wc -l <out)" 1

check 0 ctl cancel 1
check 66 ctl cancel 2
check 64 ctl cancel x
check 64 ctl cancel 0
check 64 ctl cancel

check 0 ctl metrics
file_is out 'stepd_up 1\nstepd_jobs 2\n'
check 0 ctl drain
sent 'set(r) == {"id", "op"}'
check 0 ctl drain --off
sent 'r["off"] is True'

check 0 ctl ping
file_is out 'ready\n'

# Less than one look is refused: it would never end.
for count in 0 0.5; do
    check 64 timeout 60 "$STEPCTL" -s "$sock" top --count "$count"
    grep -q 'stepctl: .*--count is 1 at least' err || fail "$(cat err)"
done

# ---- sessions ------------------------------------------------------------------

# Done without being pinned: the pages had gone. Of that session, and no other.
fake pins have=op.session_pin,key.session gone=b
check 0 ctl sessions pin a b c
file_is out ''
grep -q '^stepctl: b: not pinned yet: .*its next turn tries again$' err ||
    fail "$(cat err)"
is "$(wc -l <err)" 1
is "$(grep -c '"session_pin"' pins.log)" 3
sock=$tmp/main.sock

# ---- ping --wait ---------------------------------------------------------------

fake loading ready_after=3
check 0 ctl ping
file_is out 'loading\n'
check 0 ctl ping --wait 60
file_is out 'ready\n'
is "$(grep -c '"ping"' loading.log)" 4
fake failed state=failed
check 69 ctl ping --wait 60
file_is err 'stepctl: unavailable: the daemon could not load its model\n'
fake cause state=failed cause=no-shard
check 69 ctl ping --wait 60
file_is err 'stepctl: unavailable: no-shard\n'
fake mute mode=mute
check 75 ctl ping --wait 0.2
check 75 "$STEPCTL" -s "$tmp/nobody.sock" ping --wait 0.2
check 69 "$STEPCTL" -s "$tmp/nobody.sock" ping
fake denied2 mode=denied
check 77 ctl ping --wait 60
# A socket that appears while it waits.
"$STEPCTL" -s "$tmp/later.sock" ping --wait 60 >later.out 2>&1 &
ping=$!
fake later
wait "$ping" || fail "ping --wait: $(cat later.out)"
file_is later.out 'ready\n'
sock=$tmp/main.sock

# ---- which socket --------------------------------------------------------------

unset STEPD_SOCKET XDG_RUNTIME_DIR
check 69 "$STEPCTL" -s stepctl-test ping
grep -q 'run/stepd/stepctl-test.sock: no daemon' err || fail "$(cat err)"
check 0 env STEPD_SOCKET="$sock" "$STEPCTL" ping
check 0 "$STEPCTL" ping -s "$sock"
check 0 "$STEPCTL" "-s$sock" ping
check 0 "$STEPCTL" -s main.sock ping
mkdir -p xdg/stepd
ln -s "$sock" xdg/stepd/stepd.sock
check 0 env XDG_RUNTIME_DIR="$tmp/xdg" "$STEPCTL" ping
check 69 env STEPD_SOCKET="$tmp/nobody.sock" XDG_RUNTIME_DIR="$tmp/xdg" \
    "$STEPCTL" ping
check 69 env XDG_RUNTIME_DIR="$tmp/nowhere" "$STEPCTL" ping
grep -q '/run/stepd/stepd.sock' err || fail "no file did not move on"
# A socket that nobody listens on is not "no such file".
"$PYTHON3" -c 'import socket, sys
socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$tmp/stale.sock"
ln -sf "$tmp/stale.sock" xdg/stepd/stepd.sock
check 69 env XDG_RUNTIME_DIR="$tmp/xdg" "$STEPCTL" ping
grep -q 'xdg/stepd/stepd.sock: .*refused' err || fail "$(cat err)"
check 64 "$STEPCTL" -s "/$(printf 'a%.0s' {1..200})" ping

# ---- readers that go away, streams that are not there ---------------------------

# The pipe ends when stepctl has, and with it the connection and the request.
ctl chat flood: 2>err | head -n 1 >out
file_is out 'flood\n'
silent
to_full()
{
    ctl chat Hi >/dev/full
}
without_stderr()
{
    ctl chat Hi 2>&-
}
without_stdin()
{
    ctl chat Hi <&-
}
without_stdout()
{
    ctl chat Hi >&-
}
without_any()
{
    ctl chat <&- 2>&- >&-
}
check 74 to_full
grep -q 'standard output: ' err || fail "$(cat err)"
check 0 without_stderr
file_is out 'Hi\n'
check 0 without_stdin
file_is out 'Hi\n'
check 74 without_stdout
check 64 without_any

# ---- interrupted ------------------------------------------------------------------

is "$(signalled INT "$STEPCTL" -s "$sock" chat hang:)" 130
file_is out 'a\n'
silent
tail -n 3 main.log | has '"cancel"' || fail "nothing was cancelled"
is "$(signalled TERM "$STEPCTL" -s "$sock" chat hang:)" 143
is "$(signalled INT "$STEPCTL" -s "$sock" chat flood:)" 130
# A daemon that does not listen: the second signal ends it.
is "$(signalled 'INT INT' "$STEPCTL" -s "$sock" chat stubborn:)" 130

# ---- help ---------------------------------------------------------------------------

check 0 "$STEPCTL" --help
check 0 "$STEPCTL" --version
for command in chat complete tokenize detokenize render score status metrics \
    top bench sessions cancel drain reload ping; do
    check 0 "$STEPCTL" "$command" --help
    grep -q "^Usage: stepctl $command" out || fail "no help for $command"
    silent
    "$STEPCTL" --help | has "^  $command" || fail "$command is not listed"
done
check 64 "$STEPCTL"
check 64 "$STEPCTL" frobnicate
check 64 "$STEPCTL" --frobnicate ping
check 64 "$STEPCTL" -s
