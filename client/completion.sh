#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Build tool: completion.sh STEPCTL MANTABLES prints the bash completion of
# stepctl, made from its own --help and from the tables of `describe`.

set -eu
ctl=$1
tables=$2

commands=$("$ctl" --help | awk '/^  [a-z]/ {print $1}')

# values OPTION: the words that the key of that name takes, or where there is no
# such key, those of the one that begins with it.
values()
{
    "$tables" values | awk -v key="$(printf '%s' "${1#--}" | tr - _)" \
        -v keys="$("$tables" names | awk '/^key / {printf " %s ", $2}')" '
        $1 == key || index(keys, " " key " ") == 0 && index($1, key "_") == 1 {
            for (i = 2; i <= NF; i++) printf "%s%s", (i > 2 ? " " : ""), $i
            exit
        }'
}

cat <<'END'
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# bash completion of stepctl; made at build time from its --help and from the
# tables of the protocol's `describe`.

_stepctl()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local cmd='' i options='' words=''

    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        -s) ((i++)) ;;
        -*) ;;
        *) cmd=${COMP_WORDS[i]}; break ;;
        esac
    done
    if [[ $prev == -s ]]; then
        words=$(cd /run/stepd 2>/dev/null && printf '%s\n' *.sock)
        words=${words//.sock/}
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur"
            compgen -f -- "$cur")
        return
    fi
END
printf '    case $cmd in\n'
printf "    '')\n        words='%s'\n        options='-s --help --version'\n        ;;\n" \
    "$(echo $commands)"
for c in $commands; do
    help=$("$ctl" "$c" --help)
    options=$(printf '%s\n' "$help" | awk '/^  --/ {print $1}')
    printf '    %s)\n' "$c"
    printf "        options='%s -s --help'\n" "$(echo $options)"
    case $c in
    sessions)
        printf "        words='%s'\n" "$("$tables" names | awk '
            /^op session_/ {printf "%s%s", (n++ ? " " : ""), substr($2, 9)}')" ;;
    esac
    printf '        case $prev in\n'
    printf '%s\n' "$help" | awk '/^  --/ {print $1, $2}' |
    while read -r option arg; do
        found=$(values "$option")
        case $arg in
        FILE*) found=@file ;;
        DIR*) found=@folder ;;
        [A-Z]*) ;;
        *) continue ;;
        esac
        printf "        %s) words='%s'; options='' ;;\n" "$option" "$found"
    done
    printf '        esac\n        ;;\n'
done
cat <<'END'
    esac
    case $words in
    @file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    @folder) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    *)
        [[ $cur != -* ]] || words=$options
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
        if [[ $cmd == render && $cur != -* ]]; then
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        fi
        ;;
    esac
}
complete -F _stepctl stepctl
END
