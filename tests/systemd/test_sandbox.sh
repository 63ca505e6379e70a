#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# The sandbox: its score, with the NVIDIA drop-in too; that it is real; drop-ins
# for resources; a user's own unit; and that a prompt is nowhere after a crash.

# shellcheck source-path=SCRIPTDIR source=functions.sh
. "$(dirname "$0")/functions.sh"

# ---- scores: 6 is 0.6 of 10
units=/lib/systemd/system
score()
{
    systemd-analyze security --offline=yes --threshold="$1" "$2" >"$tmp/score" ||
        fail "$2: $(cat "$tmp/score")"
    tail -n 1 "$tmp/score"
}
# Without the drop-in that a build with CUDA has installed: masked.
mkdir -p "$tmp/plain/stepd.service.d" "$tmp/cuda/stepd.service.d"
cp "$units/stepd.service" "$units/stepd@.service" "$tmp/plain/"
ln -s /dev/null "$tmp/plain/stepd.service.d/10-nvidia.conf"
score 6 "$tmp/plain/stepd.service"
score 6 "$tmp/plain/stepd@.service"
cp "$units/stepd.service" "$tmp/cuda/"
cp "$srcdir/systemd/cuda/10-nvidia.conf" "$tmp/cuda/stepd.service.d/"
echo "with 10-nvidia.conf:"
score 10 "$tmp/cuda/stepd.service"

# ---- it is in force: seen from the process
systemctl start stepd.socket stepd.service
ready
pid=$(main_pid)
status()
{
    sed -n "s/^$1:[[:space:]]*//p" "/proc/$pid/status"
}
[ "$(status NoNewPrivs)" = 1 ] || fail "NoNewPrivs"
[ "$(status Seccomp)" = 2 ] || fail "no seccomp filter"
[ "$(status CapEff)" = 0000000000000000 ] || fail "capabilities"
[ "$(status CapBnd)" = 0000000000000000 ] || fail "bounding set"
[ "$(status Uid | cut -f1)" != 0 ] || fail "it runs as root"
[ "$(cat "/proc/$pid/oom_score_adj")" -ge 500 ] || fail "oom_score_adj"
inside()
{
    nsenter -t "$pid" -m -n --setuid "$(id -u stepd)" --setgid "$(id -g stepd)" \
        "$@"
}
inside sh -c 'ls /home/* 2>/dev/null' | has . && fail "it sees /home"
inside sh -c 'echo x >/usr/share/x' 2>/dev/null && fail "it can write /usr"
inside sh -c 'echo x >/run/stepd/x' 2>/dev/null && fail "it can write /run/stepd"
inside sh -c 'rm -f /run/stepd/stepd.sock' 2>/dev/null || :
[ -S "$SOCK" ] || fail "it could remove its socket"
inside sh -c 'echo x >/var/lib/stepd/x && rm /var/lib/stepd/x' ||
    fail "it cannot write its state"
[ "$(inside cat /proc/net/dev | grep -vc 'lo:\||')" = 0 ] ||
    fail "it has a network"
# Nothing large of it would be in a core dump: weights, KV cache.
awk '/^[0-9a-f]+-[0-9a-f]+ / {size = 0; where = $0; file = $6}
    /^Size:/ {size = $2}
    /^VmFlags:/ && size > 131072 && file == "" && !/ dd( |$)/ {
        print where, size " kB"
        bad = 1
    }
    END {exit bad}' "/proc/$pid/smaps" || fail "in a core dump"

# ---- every way of holding weights works in it
limit=$(awk '/^Max locked memory/ {print $4}' "/proc/$pid/limits")
systemctl stop stepd.service
for weights in map lock copy compact; do
    if [ $weights = lock ] && [ "$limit" != unlimited ]; then
        # Not the unit's doing: nobody may raise it where we are.
        echo "SKIP: weights=lock: LimitMEMLOCK= is $limit here"
        continue
    fi
    conf "weights=$weights"
    systemctl reset-failed stepd.service 2>/dev/null || :
    systemctl start stepd.service
    ready
    ctl complete --max-tokens 2 --temperature 0 x >"$tmp/$weights" 2>/dev/null
    cmp -s "$tmp/map" "$tmp/$weights" || fail "weights=$weights: another answer"
    systemctl stop stepd.service
done
[ -z "$(find /var/lib/stepd -mindepth 1 -perm /077)" ] ||
    fail "state that others may read: $(ls -lR /var/lib/stepd)"
conf

# ---- drop-ins for resources and devices: each starts
has_controller()
{
    grep -qw "$1" /sys/fs/cgroup/cgroup.controllers
}
for line in CPUWeight=50 MemoryHigh=80% AllowedCPUs=0 MemoryMax=90% \
    LimitMEMLOCK=64M LimitNOFILE=4096 Nice=5; do
    rm -rf /etc/systemd/system/stepd.service.d
    dropin stepd.service "$line"
    systemctl reset-failed stepd.service 2>/dev/null || :
    systemctl start stepd.service
    ready
    pid=$(main_pid)
    if [ $line = AllowedCPUs=0 ] && has_controller cpuset; then
        [ "$(status Cpus_allowed_list)" = 0 ] || fail "AllowedCPUs=0: no effect"
    fi
    systemctl stop stepd.service
done
has_controller cpuset || echo "SKIP: the effect of AllowedCPUs=: no cpuset here"
has_controller memory ||
    echo "SKIP: the effect of Memory*=: no memory controller here"
rm -rf /etc/systemd/system/stepd.service.d
mkdir -p /etc/systemd/system/stepd.service.d
cp "$srcdir"/systemd/cuda/*.conf /etc/systemd/system/stepd.service.d/
cp "$srcdir/systemd/cuda/stepd-nvidia.service" /etc/systemd/system/
systemctl daemon-reload
systemctl start stepd.service
ready
systemctl stop stepd.service
rm -rf /etc/systemd/system/stepd.service.d
systemctl daemon-reload

# ---- a prompt is nowhere after a crash: no core, no log, no file
canary=canary-$RANDOM-$RANDOM-tangerine
dropin stepd.service LimitCORE=infinity Restart=no
conf test_hold_steps=yes
ready
pid=$(main_pid)
ctl complete --max-tokens 3 --json "$canary" >"$tmp/canary" 2>&1 &
client=$!
until_true grep -q accepted "$tmp/canary"
ctl status >"$tmp/status"
ctl metrics >>"$tmp/status"
systemctl kill --kill-who=main -s SEGV stepd.service
wait "$client" && fail "answered by the dead"
until_true is_prop ActiveState failed
grep -q "$canary" "$tmp/status" && fail "in status or metrics"
journalctl -o export --no-pager | has -a "$canary" && fail "in the journal"
found=$(grep -rlas "$canary" /var /run /srv /etc / --include='core*' \
    --exclude-dir=proc --exclude-dir=sys 2>/dev/null | head -n 3) || :
found+=$(grep -rlas "$canary" /var/lib/stepd /var/log /run /var/lib/systemd \
    2>/dev/null | head -n 3) || :
[ -z "$found" ] || fail "the prompt is in $found"
rm -rf /etc/systemd/system/stepd.service.d
systemctl daemon-reload
systemctl stop stepd.socket stepd.service

# ---- a user's own unit
useradd -m own
loginctl enable-linger own
uid=$(id -u own)
until_true [ -S "/run/user/$uid/systemd/private" ]
as_own()
{
    as own env XDG_RUNTIME_DIR="/run/user/$uid" HOME=/home/own "$@"
}
as_own mkdir -p /home/own/.config/stepd
echo "model = $MODEL" | as_own tee /home/own/.config/stepd/stepd.conf >/dev/null
as_own systemctl --user start stepd.socket
[ "$(stat -c '%a %U' "/run/user/$uid/stepd/stepd.sock")" = "600 own" ] ||
    fail "the user's socket"
as_own "$BIN/stepctl" ping --wait "$WAIT_SECONDS" | has ready ||
    fail "the user's daemon"
pid=$(as_own systemctl --user show -P MainPID stepd.service)
[ "$(status Seccomp)$(status NoNewPrivs)" = 21 ] || fail "the user's sandbox"
as_own systemctl --user stop stepd.service stepd.socket
