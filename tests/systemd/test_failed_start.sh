#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# A start that cannot succeed: whoever waits is told why (`unavailable: CAUSE`),
# however many come, and once the cause is cured the next one is served: no
# start limit is hit, no unit has to be reset (fr_91, fr_92: no storm).

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

FAILED=2f6e0b9ad1c7453e9f8b3c5d7a1e4062

# told REGEX: a client that comes is told this.
told()
{
    expect_status 69 ctl complete --max-tokens 1 x 2>"$tmp/err"
    grep -Eq "^stepctl: unavailable: .*$1" "$tmp/err" || fail "$(cat "$tmp/err")"
    grep -q 'unavailable: .*unavailable:' "$tmp/err" &&
        fail "said twice: $(cat "$tmp/err")"
    return 0
}

# served_again: without a word to systemd.
served_again()
{
    until_true is_prop ActiveState failed
    conf
    ready
    systemctl stop stepd.service
    expect_prop ActiveState active stepd.socket
}

systemctl start stepd.socket

# The configuration is wrong. Seven in a row, which is over the start limit;
# several at once, too.
conf max_queue=none
told "$CONF:2: max_queue = none"
grep -q "^stepctl: unavailable: $CONF:2: max_queue" "$tmp/err" ||
    fail "README has it without more words: $(cat "$tmp/err")"
for i in 1 2 3 4 5 6; do
    ctl complete --max-tokens 1 x 2>"$tmp/err.$i" &
done
wait
cat "$tmp"/err.? >"$tmp/err"
[ "$(grep -c 'unavailable: .*max_queue' "$tmp/err")" = 6 ] ||
    fail "$(cat "$tmp/err")"
until_true is_prop ExecMainStatus 78
[ "$(n_logged MESSAGE_ID=$FAILED)" -ge 1 ] || fail "not in the journal"
served_again

# A daemon that ends of itself (70) is tried again, slowly and for ever: no limit
# of starts takes the socket away, nobody who waits is refused, and once the
# cause is gone he is answered.
is_prop RestartUSec 2s || fail "RestartSec= is $(prop RestartUSec)"
is_prop StartLimitIntervalUSec 0 || fail "a limit of starts"
if [ "$(systemctl --version | awk 'NR == 1 {print $2}')" -ge 254 ]; then
    is_prop RestartSteps 8 || fail "no back-off"
    is_prop RestartMaxDelayUSec 5min || fail "no bound of the back-off"
else
    grep -q '^RestartSteps' /lib/systemd/system/stepd.service &&
        fail "a key that this systemd does not know"
    echo "SKIP: RestartSteps=: systemd is older than 254"
fi
daemon=$(sed -n 's/^ExecStart=//p' /lib/systemd/system/stepd.service)
printf '%s\n' '#!/bin/sh' '[ -e /srv/cured ] || exit 70' "exec $daemon" \
    >/srv/failing
chmod 755 /srv/failing
dropin stepd.service RestartSec=200ms RestartSteps=0 ExecStart= \
    ExecStart=/srv/failing
ctl complete --max-tokens 1 x >/dev/null 2>"$tmp/err" &
client=$!
uptime_ms()
{
    awk '{printf "%d", $1 * 1000}' /proc/uptime
}
tried()
{
    [ "$(prop NRestarts)" -ge "$1" ]
}
until_true tried 1
before=$(prop NRestarts) from=$(uptime_ms)
until_true tried $((before + 7))
# Six whole delays at least lie between: no storm.
[ $(($(uptime_ms) - from)) -ge $((6 * 200)) ] || fail "tried again at once"
until_true is_prop ExecMainStatus 70
expect_prop ActiveState active stepd.socket
touch /srv/cured
wait "$client" || fail "who waited all the time: $(cat "$tmp/err")"
expect_prop ActiveState active
systemctl stop stepd.service
rm -f /etc/systemd/system/stepd.service.d/test.conf
systemctl daemon-reload

# The socket unit was edited: there are two sockets. Told, and not in a storm at
# which systemd would give the socket up.
mkdir -p /etc/systemd/system/stepd.socket.d
printf '%s\n' '[Socket]' 'ListenStream=/run/stepd/second.sock' \
    >/etc/systemd/system/stepd.socket.d/test.conf
systemctl stop stepd.socket
systemctl daemon-reload
systemctl start stepd.socket
told 'more than one socket'
until_true is_prop ExecMainStatus 78
expect_prop ActiveState active stepd.socket
until_true is_prop ActiveState failed
rm -r /etc/systemd/system/stepd.socket.d
systemctl stop stepd.socket
systemctl daemon-reload
systemctl start stepd.socket
[ ! -e /run/stepd/second.sock ] || rm /run/stepd/second.sock
served_again

# No model, yet.
conf model=/srv/later
told '/srv/later'
until_true is_prop ExecMainStatus 65
expect_status 69 ctl ping --wait 60 2>"$tmp/err"
grep -q 'unavailable: .*/srv/later: No such file' "$tmp/err" ||
    fail "$(cat "$tmp/err")"
served_again

# fr_91, fr_92: more than fits. One error that names the key, and no retry.
conf max_model_len=1000000
told 'max_model_len'
until_true is_prop ExecMainStatus 78
expect_prop NRestarts 0
served_again

# A lock that the limit refuses is the configuration's, not the checkpoint's: the
# line that cures it is named.
dropin stepd.service LimitMEMLOCK=4K
conf weights=lock
told 'cannot be locked in memory: .*set LimitMEMLOCK=infinity'
until_true is_prop ExecMainStatus 78
rm /etc/systemd/system/stepd.service.d/test.conf
systemctl daemon-reload
served_again

# Hidden by the sandbox, the whole folder and, as in a download cache, the files
# that its links mean: the log has the line that opens it.
mkdir -p /home/ann/hub/models--step/{blobs,snapshots/1}
for f in "$MODEL"/*; do
    cp "$f" /home/ann/hub/models--step/blobs/
    ln -s "../../blobs/$(basename "$f")" \
        /home/ann/hub/models--step/snapshots/1/
done
conf model=/home/ann/hub/models--step/snapshots/1
told '/home/ann'
until_true logged 'BindReadOnlyPaths=/home/ann/hub/models--step to'
until_true is_prop ActiveState failed
dropin stepd.service BindReadOnlyPaths=/home/ann/hub/models--step
ready
systemctl stop stepd.service

# The same behind a link on the way; and a folder that its mode closes is not
# said to be missing, nor is a line of the unit asked for.
ln -s /home/ann/hub /srv/hub
rm /etc/systemd/system/stepd.service.d/test.conf
systemctl daemon-reload
conf model=/srv/hub/models--step/snapshots/1
told '/srv/hub'
until_true logged \
    '^/home/ann/hub/models--step/snapshots/1 .*the target of /srv/hub/models--step/snapshots/1: add BindReadOnlyPaths=/home/ann/hub/models--step to'
until_true is_prop ActiveState failed
mkdir -p /srv/closed/models
cp -r "$MODEL" /srv/closed/models/
chmod 750 /srv/closed
conf model=/srv/closed/models/step-tiny
told '/srv/closed/models/step-tiny: Permission denied'
grep -q 'step-tiny.*step-tiny' "$tmp/err" && fail "said twice: $(cat "$tmp/err")"
until_true logged "^/srv/closed is closed to .* setfacl -m u:$(id -u stepd):rX"
until_true is_prop ActiveState failed
mkdir -p /srv/links
ln -s /root/blobs/shard /srv/links/model.safetensors
cp "$MODEL"/*.json /srv/links/
conf model=/srv/links
told '/srv/links'
until_true logged 'BindReadOnlyPaths=/root'
served_again
expect_clean_run
