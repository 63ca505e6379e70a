#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# README's "Operator's hour", step by step: a Hugging Face cache in somebody's
# closed home, the check, the plan, the drop-in, who may connect, metrics over
# HTTP, one user's log, and a back-up that is restored.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

SBIN=$(sed -n 's|^ExecStart=\(.*\)/stepd --config.*|\1|p' \
    /lib/systemd/system/stepd.service)

# ---- 2. the checkpoint, as `hf download` leaves it, in a home that is closed
user ann
hub=/home/ann/.cache/huggingface/hub/models--ORG--NAME
mkdir -p $hub/blobs $hub/snapshots/1234
for f in "$MODEL"/*; do
    cp "$f" "$hub/blobs/$(basename "$f").blob"
    ln -s "../../blobs/$(basename "$f").blob" "$hub/snapshots/1234/$(basename "$f")"
done
chown -R ann /home/ann
chmod 700 /home/ann

# ---- 3. the plan: root sees it all; the service's user does not see into the
# home, which is closed
conf "model=$hub/snapshots/1234" served_model_name=NAME session_disk_floor=0
# shellcheck disable=SC2120 # arguments are optional
check()
{
    "$@" "$SBIN/stepd" --check --config "$CONF" >"$tmp/plan"
}
# shellcheck disable=SC2119
check || fail "$(cat "$tmp/plan")"
grep -q '^memory plan:' "$tmp/plan" || fail "$(cat "$tmp/plan")"
grep -q '^a start would serve' "$tmp/plan" || fail "$(cat "$tmp/plan")"
expect_status 65 check setpriv --reuid stepd --regid stepd --init-groups
grep -q "^problem: $hub/snapshots/1234: Permission denied" "$tmp/plan" ||
    fail "$(cat "$tmp/plan")"

# ---- 4. the start: hidden by the sandbox, opened by the line of the log
systemctl enable --now stepd.socket 2>/dev/null
expect_status 69 ctl complete --max-tokens 1 x 2>"$tmp/err"
grep -q "unavailable: .*$hub/snapshots/1234: No such file" "$tmp/err" ||
    fail "$(cat "$tmp/err")"
until_true is_prop ActiveState failed
line=$(journalctl -q -u stepd -o cat | grep -o 'BindReadOnlyPaths=[^ ]*' |
    head -n 1)
[ "$line" = "BindReadOnlyPaths=$hub" ] || fail "the line in the log: $line"
dropin stepd.service "$line"
ready
until_true is_prop StatusText "Serving NAME"

# ---- 5. who may: the group, then a list, which also meets who is connected
expect_status 77 as ann "$BIN/stepctl" -s "$SOCK" ping 2>"$tmp/err"
grep -q 'join the group stepd' "$tmp/err" || fail "$(cat "$tmp/err")"
usermod -aG stepd ann
as ann "$BIN/stepctl" -s "$SOCK" chat --session talk --temperature 0 \
    'What is 7 plus 8?' >"$tmp/first" 2>/dev/null
as ann "$BIN/stepctl" -s "$SOCK" sessions pin talk >/dev/null
echo 'allow_users = root' >>"$CONF"
systemctl reload stepd.service
expect_status 77 as ann "$BIN/stepctl" -s "$SOCK" tokenize x 2>/dev/null
sed -i '/^allow_users/d' "$CONF"
systemctl reload stepd.service
as ann "$BIN/stepctl" -s "$SOCK" tokenize x >/dev/null

# ---- 6. metrics over HTTP, from outside of the sandbox; one user's requests
systemctl enable --now stepd-metrics.socket 2>/dev/null
"$PYTHON3" - <<'END'
import urllib.request
for _ in range(3):
    r = urllib.request.urlopen("http://127.0.0.1:9464/metrics", timeout=60)
    assert r.status == 200, r.status
    assert r.headers["content-type"].startswith("text/plain"), r.headers
    text = r.read().decode()
    assert text.count('stepd_state{state="ready"} 1\n') == 1, text
END
until_true has_logged "UID=$(id -u ann)"
journalctl -q "UID=$(id -u ann)" -o verbose | has 'TOKENS=' || fail "no fields"
journalctl -q "UID=$(id -u ann)" -o verbose | has 'plus' && fail "text in the log"

# ---- 8. a back-up while it is stopped; lost, restored, and the talk goes on
systemctl stop stepd.socket stepd.service
tar -C /var/lib -cf /srv/backup.tar stepd
find /var/lib/stepd -mindepth 1 -delete
tar -C /var/lib -xf /srv/backup.tar
chown -R stepd: /var/lib/stepd
systemctl start stepd.socket
ready
as ann "$BIN/stepctl" -s "$SOCK" chat --session talk --append --temperature 0 \
    --json 'And 3 plus 4?' >"$tmp/turn" 2>"$tmp/err" || fail "$(cat "$tmp/err")"
tail -n 1 "$tmp/turn" | has -E '"cached_tokens": *[1-9]' ||
    fail "nothing of it was restored: $(tail -n 1 "$tmp/turn")"

# ---- a scrape does not start a daemon that has ended
systemctl stop stepd.service
"$PYTHON3" - <<'END'
import urllib.request
try:
    text = urllib.request.urlopen("http://127.0.0.1:9464/metrics",
                                  timeout=60).read()
    raise SystemExit(f"answered: {text}")
except (OSError, __import__("http").client.HTTPException):
    pass
END
expect_prop ActiveState inactive
systemctl stop stepd-metrics.socket
expect_clean_run
