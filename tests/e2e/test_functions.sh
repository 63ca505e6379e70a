#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# functions.sh itself: every other end-to-end test relies on its noticing a
# daemon that dies, ends badly, leaves its socket or trips a sanitizer. Here a
# daemon and a CLI made of shell scripts do each of these.

set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/daemon" "$dir/client"
mkfifo "$dir/ready"

# The daemon "binds" a plain file and says it is ready through a fifo.
cat >"$dir/daemon/stepd" <<END
#!/usr/bin/env bash
while [ "\$1" != --socket ]; do shift; done
sock=\$2
touch "\$sock"
case "\$*" in
*--die*) rm "\$sock"; exit 65 ;;
*--noise*) echo 'ERROR: LeakSanitizer: detected memory leaks' >&2 ;;
esac
echo 'now listening' >&2
status=0
case "\$*" in *--bad*) status=3 ;; esac
case "\$*" in *--leave*) sock= ;; esac
trap '[ -z "\$sock" ] || rm -f "\$sock"; exit \$status' TERM
echo ready >'$dir/ready'
exec {never}<> <(:)
# A signal just before the read is heard at its end.
while :; do read -r -t 1 _ <&\$never; done
END
cat >"$dir/client/stepctl" <<END
#!/usr/bin/env bash
[ "\$3" = ping ] || exit 64
read -r _ <'$dir/ready'
END
chmod +x "$dir/daemon/stepd" "$dir/client/stepctl"

status=0

# expect WANT TEXT SCRIPT: a test made of SCRIPT ends with WANT and says TEXT.
expect()
{
    local got=0

    printf '. %q\n%s\n' "$here/functions.sh" "$3" >"$dir/test.sh"
    builddir=$dir TMPDIR=$dir timeout 60 bash "$dir/test.sh" >"$dir/out" 2>&1 || got=$?
    if [ "$got" -ne "$1" ] || ! grep -qF -- "$2" "$dir/out"; then
        echo "status $got instead of $1, or no '$2', from: $3"
        cat "$dir/out"
        status=1
    fi
    if compgen -G "$dir/stepd-test.*" >/dev/null; then
        echo "left its folder behind: $3"
        status=1
    fi
}

expect 0 'all well' 'start_stepd; stop_stepd; echo all well'
expect 0 'all well' "start_stepd
    wait_for_line \"\$tmp/stepd.log\" 'now l[a-z]+ing'
    stop_stepd; echo all well"
expect 0 'all well' 'start_stepd; start_stepd -n two
    stop_stepd; stop_stepd two; echo all well'
expect 1 'ended with status 65 before' 'start_stepd --die'
expect 1 'status 3 instead of 0' 'start_stepd --bad; stop_stepd'
expect 1 'left its socket' 'start_stepd --leave; stop_stepd'
expect 1 'a sanitizer found' 'start_stepd --noise; stop_stepd'
expect 1 'log of stepd' 'start_stepd; false'
expect 1 'no line in' "WAIT_SECONDS=1; start_stepd
    wait_for_line \"\$tmp/stepd.log\" absent"
expect 77 'SKIP: test.sh: no such thing' 'skip no such thing'
expect 77 'this needs to work: false' 'requires false'
expect 1 'exit status 0 instead of 3' 'expect_status 3 true'
# A user's own daemon, as README has it, is no business of a test.
export STEPD_SOCKET=$dir/somebodys.sock
expect 0 'all well' 'start_stepd; stop_stepd; echo all well'
unset STEPD_SOCKET
expect 5 'b c' "cleanup_fn echo a; cleanup_fn printf '%s %s\n' b c; exit 5"
exit "$status"
