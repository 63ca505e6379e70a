#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
#
# Random answers drawn under the masks of 240 schemas parse as JSON and are
# valid in the eyes of an independent validator (python3-jsonschema).

set -euo pipefail

srcdir=${srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
builddir=${builddir:-.}
PYTHON3=${PYTHON3:-python3}

if ! "$PYTHON3" -c 'import jsonschema' 2>/dev/null; then
    echo "SKIP: python3 has no jsonschema module (python3-jsonschema)"
    exit 77
fi
answers=$(mktemp)
trap 'rm -f "$answers"' EXIT
"$builddir/tests/daemon/make_answers" "$srcdir/tests/data/schemas.jsonl" \
    "$srcdir/tests/data/step-tiny" 4 >"$answers"
"$PYTHON3" - "$answers" <<'END'
import json
import re
import sys
import jsonschema

checker = jsonschema.FormatChecker(formats=())


@checker.checks("date", raises=ValueError)
def is_date(text):
    import datetime
    datetime.date.fromisoformat(text)
    return True


@checker.checks("time", raises=ValueError)
def is_time(text):
    return re.fullmatch(r"([01]\d|2[0-3])(:[0-5]\d){2}(\.\d+)?"
                        r"(Z|[+-]([01]\d|2[0-3]):[0-5]\d)", text) is not None


@checker.checks("date-time", raises=ValueError)
def is_date_time(text):
    day, time = text.split("T")
    return is_date(day) and is_time(time)


@checker.checks("uuid", raises=ValueError)
def is_uuid(text):
    import uuid
    return str(uuid.UUID(text)) == text.lower()


def error_of(schema, text):
    validator = jsonschema.validators.Draft202012Validator(
        schema, format_checker=checker)
    try:
        return jsonschema.exceptions.best_match(
            validator.iter_errors(json.loads(text)))
    except ValueError as e:
        return e


sys.setrecursionlimit(20000)
bad, names, crossed, last = 0, {}, 0, "!"
for line in open(sys.argv[1], encoding="utf-8"):
    row = json.loads(line)
    error = error_of(row["schema"], row["text"])
    crossed += error_of(row["schema"], last) is not None
    last = row["text"]
    if error is not None:
        bad += 1
        print(f"{row['name']}: {row['text'][:300]!r}: {str(error)[:300]}")
    names[row["name"]] = names.get(row["name"], 0) + 1
total = sum(names.values())
print(f"{total} answers to {len(names)} schemas, {bad} not valid")
# The validator does object where an answer is to the schema before.
sys.exit(bad > 0 or len(names) < 200 or total < 900 or crossed < 100)
END
