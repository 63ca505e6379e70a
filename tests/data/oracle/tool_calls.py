#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
"""The text of an answer to reasoning, content and tool calls.

Written from the description of the format alone, over whole texts, with
Python's own re, json and ast: what daemon/text/ does on a stream must come to
the same. parse_cases.py uses it to make tests/data/parse/.
"""

import ast
import json
import re

CALL, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"


class Content(Exception):
    """The block is content."""


# ---- reasoning ------------------------------------------------------------

def trim(text):
    return text[:-1] if text.endswith("\n") else text


def split_reasoning(text, inside):
    """(reasoning, content) of a text that begins inside reasoning or not."""
    before = ""
    first = {t: text.find(t) for t in ("<think>", "</think>", CALL)}
    first = {t: i for t, i in first.items() if i >= 0}
    tag = min(first, key=first.get) if first else None
    if not inside:
        if tag != "<think>":
            # a </think> before it is text
            rest = re.search(r"<think>|<tool_call>", text)
            if rest is None or rest.group() == CALL:
                return "", text
            first["<think>"] = rest.start()
        before = text[:first["<think>"]]
        text = text[first["<think>"] + 7:]
    elif tag == "<think>":
        text = text[:first[tag]] + text[first[tag] + 7:]
    end = re.search(r"</think>|<tool_call>", text)
    if end is None:
        return trim(text), before
    reasoning = trim(text[:end.start()])
    if end.group() == "</think>":
        rest = text[end.end():]
        return reasoning, before + rest.removeprefix("\n")
    # ended by a call: one </think> outside of calls may come late
    content, rest = "", text[end.start():]
    while rest.startswith(CALL):
        stop = rest.find(CALL_END)
        if stop < 0:
            return reasoning, before + content + rest
        stop += len(CALL_END)
        content += rest[:stop]
        rest = rest[stop:]
        late = re.search(r"</think>|<tool_call>", rest)
        if late is None:
            return reasoning, before + content + rest
        if late.group() == "</think>":
            content += trim(rest[:late.start()])
            content += rest[late.end():].removeprefix("\n")
            return reasoning, before + content
        content += rest[:late.start()]
        rest = rest[late.start():]
    return reasoning, before + content + rest


# ---- values ---------------------------------------------------------------

def strict(value):
    """What JSON has words for."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


def loads(text):
    def refuse(_):
        raise ValueError
    value = json.loads(text, parse_constant=refuse)
    strict(value)
    return value


def literal(text):
    value = ast.literal_eval(text.strip(" \t\n\r\f"))
    if isinstance(value, set):
        # the order of a set is the text's
        node = ast.parse(text.strip(), mode="eval").body
        value = [ast.literal_eval(e) for e in node.elts]
    elif isinstance(value, tuple):
        value = list(value)
    if not (value is None or
            isinstance(value, (bool, int, float, str, list, dict))):
        raise ValueError
    strict(value)
    return value


def number(x):
    return int(x) if float(x).is_integer() else x


def coerce(text, schema, name):
    if text.lower() == "null":
        return None
    entry = schema.get(name) if isinstance(schema, dict) else None
    if not isinstance(entry, dict) or "type" not in entry:
        return text
    kind = str(entry["type"]).strip().lower()
    if kind in ("string", "str", "text", "varchar", "char", "enum"):
        return text
    if kind.startswith(("int", "uint", "long", "short", "unsigned")):
        for read in (int, lambda t: whole(float(t)),
                     lambda t: number(numeric(literal(t)))):
            try:
                return read(text)
            except (ValueError, SyntaxError, TypeError, OverflowError,
                    MemoryError, RecursionError):
                pass
        return text
    if kind.startswith(("num", "float")):
        try:
            x = float(text)
            if x != x:
                raise ValueError
        except ValueError:
            try:
                x = float(numeric(literal(text)))
            except (ValueError, SyntaxError, TypeError, OverflowError,
                    MemoryError, RecursionError):
                return text
        if x in (float("inf"), float("-inf")):
            raise Content
        return number(x)
    if kind in ("boolean", "bool", "binary"):
        return {"true": True, "1": True, "false": False,
                "0": False}.get(text.strip().lower(), text)
    if (kind in ("object", "array", "arr") or
            kind.startswith(("dict", "list"))):
        try:
            return loads(text)
        except (ValueError, RecursionError):
            pass
        try:
            value = literal(text)
            if isinstance(value, (list, dict)):
                return value
        except (ValueError, SyntaxError, TypeError, MemoryError,
                RecursionError):
            pass
        return text
    try:
        return literal(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def whole(x):
    if not x.is_integer():
        raise ValueError
    return int(x)


def numeric(x):
    if not isinstance(x, (bool, int, float)):
        raise ValueError
    return int(x) if isinstance(x, bool) else x


# ---- calls ----------------------------------------------------------------

def schema_of(tools, name):
    for tool in tools:
        function = tool.get("function", {})
        if tool.get("type") == "function" and function.get("name") == name:
            parameters = function.get("parameters")
            if not isinstance(parameters, dict):
                return {}
            properties = parameters.get("properties", parameters)
            return properties if isinstance(properties, dict) else {}
    return {}


def clean_name(text):
    name = text.strip().lstrip("=").strip()
    if name.strip("'\"") == "":
        return None
    if name[0] in "'\"" and name[-1] == name[0]:
        name = name[1:-1].strip()
    return name if name.strip("'\"") else None


def scan_parameters(text, schema):
    """For what lacks an end tag or a >."""
    pos = 0
    while (start := text.find(PARAMETER, pos)) >= 0:
        start += len(PARAMETER)
        gt = text.find(">", start)
        value = gt + 1
        if gt < 0:
            ends = [i for i in (text.find("\n", start),
                                text.find(PARAMETER_END, start),
                                text.find(PARAMETER, start)) if i >= 0]
            if not ends:
                return
            gt = value = min(ends)
        name = text[start:gt].strip()
        following = text.find(PARAMETER, value)
        end = text.find(PARAMETER_END, value)
        if end < 0 or 0 <= following < end:
            stop = pos = following if following >= 0 else len(text)
        else:
            stop, pos = end, end + len(PARAMETER_END)
        if not schema or name in schema:
            yield name, text[value:stop]


def read_parameters(text, schema):
    found = re.findall(r"<parameter=(.*?)</parameter>", text, re.S)
    if (any(PARAMETER in m or ">" not in m for m in found) or
            (not found and PARAMETER in text)):
        return list(scan_parameters(text, schema))
    return [m.split(">", 1) for m in found]


def read_function(text, tools):
    if ">" not in text:
        raise Content
    head, rest = text.split(">", 1)
    name = clean_name(head)
    if name is None:
        return None
    schema = schema_of(tools, name)
    arguments = {}
    for key, value in read_parameters(rest, schema):
        value = value.removeprefix("\n").removesuffix("\n")
        arguments[key] = coerce(value, schema, key)
    try:
        return {"name": name, "arguments": strict(arguments)}
    except (ValueError, UnicodeError):
        raise Content from None


def read_block(text, tools):
    """The calls of a block, [] where it is content."""
    try:
        calls = [read_function(m, tools) for m in
                 re.findall(r"<function(?:=|\s+)?(.*?)</function>", text,
                            re.S)]
    except Content:
        return []
    return [c for c in calls if c is not None]


def pieces(text, tools):
    """The text as a list of str (content) and of blocks (text, calls)."""
    out = []
    pos = 0
    for block in re.finditer(r"<tool_call>.*?</tool_call>", text, re.S):
        out += bare(text[pos:block.start()], tools, False)
        out.append((block.group(), read_block(block.group(), tools)))
        pos = block.end()
    return out + bare(text[pos:], tools, True)


def bare(text, tools, last):
    """Functions outside of complete blocks."""
    out = []
    while True:
        m = re.search(r"<function=.*?</function>", text, re.S)
        if m is None:
            break
        tag = re.search(r"</?tool_call>", m.group())
        if tag is not None and tag.group() == CALL_END:
            # it holds the end of a block: it is text up to there
            cut = m.start() + m.group().index(CALL_END) + len(CALL_END)
            out.append(text[:cut])
            text = text[cut:]
            continue
        start = m.start()
        if last and CALL in text[:start]:
            start = text.index(CALL)
        calls = read_block(text[start:m.end()], tools)
        if calls or start != m.start():
            out.append(text[:start])
            out.append((text[start:m.end()], calls))
            text = text[m.end():]
            absorbed = re.match(r"(\s*)</tool_call>", text)
            if absorbed and start == m.start():
                text = absorbed.group(1) + text[absorbed.end():]
        else:
            out.append(text[:m.end()])
            text = text[m.end():]
    if last and CALL in text:
        at = text.index(CALL)
        return out + [text[:at], (text[at:], [])]
    return out + [text]


def parse(text, tools=None, inside=True):
    reasoning, content = split_reasoning(text, inside)
    calls = []
    if tools:
        parts = []
        held = ""
        after = False
        for p in pieces(content, tools):
            if isinstance(p, str):
                held += p
                continue
            if not (after and held.strip() == ""):
                parts.append(held)
            held = ""
            after = True
            calls += p[1]
            if not p[1]:
                parts.append(p[0])
        parts.append(held)
        content = "".join(parts)
    return {"reasoning": reasoning, "content": content, "calls": calls}
