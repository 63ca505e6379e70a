#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Which folder may include what. The table below is the whole rule: project
# headers are named from the top of the tree, nothing points up, and each
# outside library is known to few folders. Then the rule is tried on itself:
# in a copy of the tree each kind of violation is planted and must be found.

set -euo pipefail

top=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)

# file pattern -> what it may include: project headers by pattern, outside
# libraries as <pattern>. The first pattern that matches the file decides.
# config.h and tests/ aside; a pattern's * crosses slashes.
rules()
{
    cat <<'END'
daemon/main.c       daemon/* client/wire.h <ev.h>
daemon/options.[ch] daemon/options.h daemon/base/* daemon/model/model.h
daemon/check.[ch]   daemon/check.h daemon/base/* daemon/model/model.h daemon/text/tokenizer.h
daemon/sandbox.[ch] daemon/sandbox.h
daemon/service.[ch] daemon/service.h daemon/base/* daemon/net/server.h daemon/options.h daemon/sched/engine.h <ev.h>
daemon/base/*       daemon/base/* <ini.h> <systemd/*> <xxhash.h>
daemon/text/*       daemon/base/* daemon/text/* <jansson.h> <pcre2.h>
daemon/model/*      daemon/base/* daemon/model/* kernels/kernels.h kernels/quant.h kernels/compact.h <jansson.h> <pcre2.h> <xxhash.h>
daemon/sched/*      daemon/base/* daemon/text/* daemon/sched/* daemon/model/model.h <xxhash.h>
daemon/net/*        daemon/base/* daemon/net/* daemon/sched/job.h daemon/sched/engine.h client/wire.h <ev.h>
kernels/ref/*       KERNELS kernels/ref/*
kernels/cpu/*       KERNELS kernels/cpu/*
kernels/cuda/*      KERNELS kernels/cuda/* <cuda*> <cublas*> <nccl*> <cooperative_groups*> <mma*>
kernels/*           kernels/*
client/cli.[ch]     client/client.h client/cli.h client/cli_* <jansson.h> <histedit.h> <editline/*>
client/cli_*        client/client.h client/cli.h client/cli_* <jansson.h> <histedit.h> <editline/*>
client/example_*    <stepd/client.h> <ev.h>
client/client.h
client/wire.h
client/mantables.c  client/wire*
client/wire*        client/wire* <msgpack.h> <msgpack/*>
client/client*      client/client* client/wire.h
END
}

# Everything else in <> is the C library or a compiler's header.
outside='<(ev|ini|xxhash|jansson|pcre2|histedit|msgpack|nccl|mma)[a-z_]*\.h>|<(systemd|editline|msgpack|cooperative_groups)/|<(cuda|cublas)'

# check_tree ROOT: prints each violation, fails where there is one. A pattern
# is a shell's, * and [..] alone. Headers directly in kernels/ are shared by
# the backends (quant.h, ...): KERNELS.
check_tree()
{
    local found

    # shellcheck disable=SC2016 # awk's
    found=$(cd "$1" && find client daemon kernels -type f \
        \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) \
        -exec grep -EHn '^ *# *include' {} + | sort -t: -k1,1 -k2,2n |
        awk -F: -v outside="$outside" '
            function expression(pattern) {
                gsub(/[.+]/, "[&]", pattern)
                gsub(/[*]/, ".*", pattern)
                return "^" pattern "$"
            }
            function may_include(file, what,    i, j, n, item) {
                if (what == "config.h")
                    return 1
                for (i = 1; i <= n_rules; i++) {
                    if (file !~ rule[i])
                        continue
                    n = split(allowed[i], item, " ")
                    for (j = 1; j <= n; j++) {
                        if (item[j] == "KERNELS") {
                            if (what ~ /^kernels\/[^\/]*[.]h$/)
                                return 1
                        } else if (what ~ expression(item[j])) {
                            return 1
                        }
                    }
                    return 0
                }
                return 0
            }
            FNR == NR {
                n = index($0 " ", " ")
                rule[++n_rules] = expression(substr($0, 1, n - 1))
                allowed[n_rules] = substr($0, n)
                next
            }
            {
                what = $0
                sub(/^[^:]*:[^:]*: *# *include */, "", what)
                if (!sub(/^"/, "", what))
                    sub(/>.*/, ">", what)
                else
                    sub(/".*/, "", what)
                if ((what !~ /^</ || what ~ outside) && !may_include($1, what))
                    print $1 ":" $2 ": must not include " what
            }' <(rules) -)
    [ -z "$found" ] || { echo "$found"; return 1; }
}

# planted FILE INCLUDE: 0 where the planted line is reported.
planted()
{
    local file=$1 include=$2 out

    rm -rf "$tmp/tree"
    mkdir -p "$tmp/tree/client" "$tmp/tree/daemon" "$tmp/tree/kernels" \
        "$(dirname "$tmp/tree/$file")"
    if [ -f "$top/$file" ]; then
        cp "$top/$file" "$tmp/tree/$file"
    fi
    echo "#include $include" >>"$tmp/tree/$file"
    out=$(check_tree "$tmp/tree") && return 1
    grep -qF "$file:" <<<"$out" &&
        grep -qF "must not include ${include//\"/}" <<<"$out"
}

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

status=0
check_tree "$top" || status=1

while read -r file include; do
    if ! planted "$file" "$include"; then
        echo "not noticed: $file including $include"
        status=1
    fi
done <<'END'
daemon/base/conf.c "daemon/text/tokenizer.h"
daemon/base/conf.c <jansson.h>
daemon/text/chat.c "daemon/sched/job.h"
daemon/text/chat.h "kernels/kernels.h"
daemon/text/tokenizer.c <ev.h>
daemon/model/forward.c "daemon/sched/job.h"
daemon/model/forward.c "kernels/cpu/pool.h"
daemon/model/forward.c "daemon/text/tokenizer.h"
daemon/sched/engine.c "daemon/model/forward.h"
daemon/sched/engine.c "daemon/net/conn.h"
daemon/sched/engine.c "client/wire.h"
daemon/sched/batch.c <ev.h>
daemon/sched/engine.h "kernels/kernels.h"
daemon/net/conn.c "daemon/sched/batch.h"
daemon/net/conn.c "daemon/model/model.h"
daemon/net/request.c <msgpack.h>
daemon/net/listen.c <systemd/sd-daemon.h>
daemon/net/conn.c "conn.h"
daemon/main.c "client/client.h"
kernels/kernels.c "daemon/base/die.h"
kernels/ref/matmul.c "kernels/cpu/pool.h"
kernels/cpu/matmul.c "kernels/ref/ref.h"
kernels/cpu/matmul.c "daemon/base/die.h"
kernels/cpu/pool.c <ev.h>
kernels/ref/matmul.c <cuda_runtime.h>
kernels/cuda/matmul.cu "kernels/cpu/pool.h"
client/cli.c "client/wire.h"
client/cli_chat.c "client/client_io.h"
client/cli_chat.c <msgpack.h>
client/client.h "client/wire.h"
client/client.c "daemon/base/buf.h"
client/client.c <msgpack.h>
client/client.c <ev.h>
client/example_poll.c "client/wire.h"
client/example_poll.c <jansson.h>
client/wire.c "client/client.h"
client/wire.c <jansson.h>
END

# And what is right must not be reported.
rm -rf "$tmp/tree"
mkdir -p "$tmp/tree"/{client,daemon/net,kernels/cpu}
printf '#include <%s>\n' ev.h stdint.h sys/socket.h >"$tmp/tree/daemon/net/a.c"
printf '#include "%s"\n' config.h daemon/sched/job.h client/wire.h \
    >>"$tmp/tree/daemon/net/a.c"
printf '#include "%s"\n' kernels/quant.h kernels/cpu/pool.h \
    >"$tmp/tree/kernels/cpu/a.c"
if ! check_tree "$tmp/tree"; then
    echo "a tree without violations was refused"
    status=1
fi
exit "$status"
