#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 The stepd authors
"""Makes tests/data/parse/: texts of answers and what they come to.

Where a case states its result, that is what counts, and tool_calls.py is held
against it; the others take theirs from there.

    python3 parse_cases.py ../parse
"""

import json
import random
import sys

from tool_calls import parse


def tool(name, parameters, **more):
    return {"type": "function",
            "function": {"name": name, "parameters": parameters, **more}}


TOOLS = [
    tool("add", {"type": "object", "properties": {
        "a": {"type": "integer"}, "tags": {"type": "array"},
        "ok": {"type": "boolean"}, "note": {"type": "string"}}}),
    tool("f", {"type": "object", "properties": {"a": {"type": "string"},
                                                "c": {"type": "string"}}}),
    tool("get", {"type": "object", "properties": {
        "city": {"type": "string"}, "n": {"type": "number"},
        "o": {"type": "object"}, "any": {"type": ["integer", "null"]}}}),
    tool("ping", {}),
    tool("bare", {"x": {"type": "int"}, "y": {"type": "FLOAT "},
                  "z": {"type": "Dict[str, int]"}}),
    tool("odd", {"type": "object", "properties": {
        "none": {"type": None}, "list": "no schema", "ref": {"$ref": "#/d"},
        "u": {"type": "uint8"}, "e": {"type": "enum"}}}),
    tool("void", None),
    {"type": "retrieval", "function": {"name": "other"}},
]


def call(name, *arguments):
    """A call as the model is asked to write it."""
    return ("<tool_call>\n<function=%s>\n" % name +
            "".join("<parameter=%s>\n%s\n</parameter>\n" % a
                    for a in arguments) +
            "</function>\n</tool_call>")


def made(name, **arguments):
    return {"name": name, "arguments": arguments}


F1 = ("<tool_call>\n<function=f>\n<parameter=a>1</parameter>\n</function>\n"
      "</tool_call>")

REASONING = [
    ("one newline each side", "r\n</think>\nAns", "r", "Ans", []),
    ("a start tag is dropped", "<think>r</think>\n\nAns", "r", "\nAns", []),
    ("nothing behind the tag", "r</think>", "r", "", []),
    ("unfinished", "r\n", "r", "", []),
    ("two newlines each side", "a\n\n</think>\n\nx", "a\n", "\nx", []),
    ("worked example", "\nThink\nmore\n</think>\nAns", "\nThink\nmore", "Ans",
     []),
    ("empty", "", "", "", []),
    ("only the tag", "\n</think>\n", "", "", []),
    ("half a tag", "\n</thin", "\n</thin", "", []),
    ("a second end tag is text", "a</think></think>b", "a", "</think>b", []),
    ("a later start tag is text", "a</think>b<think>c</think>", "a",
     "b<think>c</think>", []),
    ("fr_1 reasoning of turn two", "plan…</think>ok", "plan…", "ok", []),
    ("fr_6 no start tag", "abc</think>def", "abc", "def", []),
    ("fr_2 a call ends reasoning", "reason" + F1 + "</think>late", "reason",
     "late", [made("f", a="1")]),
    ("fr_2 with newlines", "reason\n" + F1 + "\n</think>\n\nlate", "reason",
     "\nlate", [made("f", a="1")]),
    ("fr_2 two calls", "r" + F1 + F1 + "</think>x", "r", "x",
     [made("f", a="1"), made("f", a="1")]),
    ("fr_2 an end tag in an argument",
     "r\n</think>\n" + call("f", ("a", "</think>")), "r", "",
     [made("f", a="</think>")]),
    ("fr_2 a start of a call only", "r<tool_call>", "r", "<tool_call>", []),
    ("fr_3 reasoning, then a call",
     "<think>\nuse tool\n</think>\n" + call("f", ("a", "1")), "\nuse tool", "",
     [made("f", a="1")]),
    ("fr_10 reasoning and a call", "think\n</think>\nSure." + F1, "think",
     "Sure.", [made("f", a="1")]),
    ("fr_12 no reasoning at all", F1, "", "", [made("f", a="1")]),
    ("fr_12 a newline first", "\n" + F1, "", "", [made("f", a="1")]),
    ("fr_50 what must fit begins behind the end of reasoning",
     '{"wrong": 1}</think>{"city": "Rome"}', '{"wrong": 1}',
     '{"city": "Rome"}', []),
    ("fr_50 a tag in a string ends it all the same",
     '{"a": "</think>"}', '{"a": "', '"}', []),
    ("fr_7 a level in the text is text", "Reasoning: low\n\n</think>\nhi",
     "Reasoning: low\n", "hi", []),
    ("characters of four bytes", "\U0001f600\n</think>\n\U0001f601",
     "\U0001f600", "\U0001f601", []),
]

CALLS = [
    ("spec, prose first",
     'Sure.<tool_call>\n<function=add>\n<parameter=a>\n3\n</parameter>\n'
     '<parameter=tags>\n["x", "y"]\n</parameter>\n</function>\n</tool_call>',
     "Sure.", [made("add", a=3, tags=["x", "y"])]),
    ("spec, one newline each side of a value",
     call("add", ("note", "\nline1\nline2\n")), "",
     [made("add", note="\nline1\nline2\n")]),
    ("spec, TRUE", call("add", ("ok", "TRUE")), "", [made("add", ok=True)]),
    ("spec, yes", call("add", ("ok", "yes")), "", [made("add", ok="yes")]),
    ("spec, no arguments",
     "<tool_call><function=ping></function></tool_call>", "", [made("ping")]),
    ("spec, an end tag is missing",
     "<tool_call>\n<function=add>\n<parameter=a>\n3\n<parameter=note>\nhi\n"
     "</parameter>\n</function>\n</tool_call>", "",
     [made("add", a=3, note="hi")]),
    ("spec, no function", "<tool_call>\nhello\n</tool_call>",
     "<tool_call>\nhello\n</tool_call>", []),
    ("fr_9 all in one line",
     "<tool_call><function=get><parameter=city>Rome</parameter>\n</function>"
     "</tool_call>", "", [made("get", city="Rome")]),
    ("fr_13 prose, a newline, a call", "Let me check.\n" + F1,
     "Let me check.\n", [made("f", a="1")]),
    ("fr_14 a newline is a newline",
     "<tool_call>\n<function=f>\n<parameter=c>a\nb</parameter>\n</function>\n"
     "</tool_call>", "", [made("f", c="a\nb")]),
    ("fr_14 a backslash n stays two characters", call("f", ("c", "a\\nb")), "",
     [made("f", c="a\\nb")]),
    ("fr_4 a tool that is not there", call("invalid", ("q", "1")), "",
     [made("invalid", q="1")]),
    ("fr_4 a function that never ends", "<tool_call>\n<function=invalid>\n",
     "<tool_call>\n<function=invalid>\n", []),
    ("two blocks", call("ping") + "\n" + call("f", ("a", "x")), "",
     [made("ping"), made("f", a="x")]),
    ("two blocks, blank lines between", call("ping") + " \n\n\t" + call("ping"),
     "", [made("ping"), made("ping")]),
    ("two blocks, text between", call("ping") + "\nand\n" + call("ping"),
     "\nand\n", [made("ping"), made("ping")]),
    ("two functions in a block",
     "<tool_call>\n<function=ping>\n</function>\n<function=f>\n"
     "<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>", "",
     [made("ping"), made("f", a="x")]),
    ("a newline behind the last block", call("ping") + "\n", "\n",
     [made("ping")]),
    ("text behind", call("ping") + "done", "done", [made("ping")]),
    ("blanks before the first block stay", " \n" + call("ping"), " \n",
     [made("ping")]),
    ("a wide blank between", call("ping") + "　\n" + call("ping"), "",
     [made("ping"), made("ping")]),
    ("a bare function", "<function=ping></function>", "", [made("ping")]),
    ("a bare function, its end of block",
     "x<function=ping></function>\n</tool_call>y", "x\ny", [made("ping")]),
    ("two bare functions", "<function=ping></function>\n<function=ping>"
     "</function>", "", [made("ping"), made("ping")]),
    ("a bare function before a block",
     "<function=ping></function>\n" + call("ping"), "",
     [made("ping"), made("ping")]),
    ("a bare function that a block interrupts",
     "<function=ping>" + call("f", ("a", "x")) + "</function>",
     "<function=ping></function>", [made("f", a="x")]),
    ("an end of block alone", "a</tool_call>b", "a</tool_call>b", []),
    ("the end of the block is missing",
     "<tool_call>\n<function=ping>\n</function>\n", "\n", [made("ping")]),
    ("the end of the second block is missing",
     call("ping") + "\n<tool_call>\n<function=f>\n<parameter=a>\nx\n"
     "</parameter>\n</function>", "", [made("ping"), made("f", a="x")]),
    ("a block left open", "a" + call("ping") + "b<tool_call>\n<function=f",
     "ab<tool_call>\n<function=f", [made("ping")]),
    ("a start of block in a block", "<tool_call><tool_call>" +
     "<function=ping></function></tool_call>", "", [made("ping")]),
    ("a repeated name", call("f", ("a", "1"), ("c", "2"), ("a", "3")), "",
     [made("f", a="3", c="2")]),
    ("a name in quotes",
     '<tool_call><function="ping"></function></tool_call>', "",
     [made("ping")]),
    ("a name behind a blank",
     "<tool_call><function ping></function></tool_call>", "", [made("ping")]),
    ("a name with blanks",
     "<tool_call><function = ping ></function></tool_call>", "",
     [made("ping")]),
    ("no name", "<tool_call><function=></function></tool_call>",
     "<tool_call><function=></function></tool_call>", []),
    ("no name among others",
     "<tool_call><function=></function><function=ping></function>"
     "</tool_call>", "", [made("ping")]),
    ("quotes for a name", "<tool_call><function=\"\"></function></tool_call>",
     "<tool_call><function=\"\"></function></tool_call>", []),
    ("no end of the name",
     "<tool_call><function=ping</function></tool_call>",
     "<tool_call><function=ping</function></tool_call>", []),
    ("no end of the second name",
     "<tool_call><function=ping></function><function=x</function>"
     "</tool_call>",
     "<tool_call><function=ping></function><function=x</function>"
     "</tool_call>", []),
    ("an unknown parameter", call("f", ("new", "3")), "",
     [made("f", new="3")]),
    ("an unknown parameter, scanned",
     "<tool_call><function=f><parameter=new>3<parameter=a>1</function>"
     "</tool_call>", "", [made("f", a="1")]),
    ("a parameter without >",
     "<tool_call><function=f><parameter=a\nx</parameter></function>"
     "</tool_call>", "", None),
    ("tags of markup in a value",
     call("f", ("c", "<b>1 < 2</b> </param> <parameter>")), "",
     [made("f", c="<b>1 < 2</b> </param> <parameter>")]),
    ("code in a value", call("f", ("c", "if (a<b) {\n\treturn \"x\";\n}")), "",
     [made("f", c="if (a<b) {\n\treturn \"x\";\n}")]),
    ("an empty value", call("f", ("a", "")), "", [made("f", a="")]),
    ("values of all scripts", call("f", ("a", "Ж 中文 한국어 e\u0301 \U0001f600")),
     "", [made("f", a="Ж 中文 한국어 e\u0301 \U0001f600")]),
    ("fr_66 an emoji in a value", call("f", ("c", "\U0001f468\u200d\U0001f469")),
     "", [made("f", c="\U0001f468\u200d\U0001f469")]),
    ("fr_69 Hangul in a value", call("f", ("c", "안녕하세요 세계")), "",
     [made("f", c="안녕하세요 세계")]),
    ("fr_51 many blanks behind a call", call("ping") + " " * 200, " " * 200,
     [made("ping")]),
    ("fr_15 prose where a call was hoped for", "hello, no call here",
     "hello, no call here", []),
    ("fr_15 a promise of a call", "I will call f now: f(a=1)",
     "I will call f now: f(a=1)", []),
    ("fr_18 the name of a control token takes no blank", "x<|im_end|>y",
     "x<|im_end|>y", []),
    ("fr_18 nor in a value", call("f", ("c", "abs</s>USER<|im_end|>y")), "",
     [made("f", c="abs</s>USER<|im_end|>y")]),
    ("fr_70 a text that a stop string would cut", "abc DEFGHIJ and more",
     "abc DEFGHIJ and more", []),
    ("combining marks in a value",
     call("f", ("c", "e\u0301\u0323 a\u0308 \u0301 n\u0303")), "",
     [made("f", c="e\u0301\u0323 a\u0308 \u0301 n\u0303")]),
    ("no tool has a schema", call("void", ("a", "1")), "",
     [made("void", a="1")]),
    ("a tool of another type", call("other", ("a", "1")), "",
     [made("other", a="1")]),
]


def value(name, key, text, result):
    return ("%s.%s: %r" % (name, key, text), call(name, (key, text)), "",
            [made(name, **{key: result})])


VALUES = [value(*v) for v in (
    ("add", "a", "3", 3), ("add", "a", "-12", -12), ("add", "a", " +7 ", 7),
    ("add", "a", "1_000", 1000), ("add", "a", "007", 7),
    ("add", "a", "3.0", 3), ("add", "a", "1e3", 1000), ("add", "a", "3.5", 3.5),
    ("add", "a", "0x10", 16), ("add", "a", "True", 1), ("add", "a", "x", "x"),
    ("add", "a", "", ""), ("add", "a", "null", None), ("add", "a", "NULL", None),
    ("add", "a", " null", " null"), ("add", "a", "1__0", "1__0"),
    ("add", "a", "123456789012345678901234567890",
     123456789012345678901234567890),
    ("add", "a", "inf", "inf"), ("add", "a", "nan", "nan"),
    ("add", "a", "'3'", "'3'"), ("add", "a", "1e400", "1e400"),
    ("get", "n", "3.0", 3), ("get", "n", "2.5", 2.5), ("get", "n", "-0.0", 0),
    ("get", "n", "1e22", 10 ** 22), ("get", "n", "True", 1),
    ("get", "n", "nan", "nan"), ("get", "n", ".5", 0.5),
    ("get", "n", "1e-7", 1e-07), ("get", "n", "0.1", 0.1),
    ("get", "n", "five", "five"), ("get", "n", "12345678901234567890",
                                   12345678901234567168),
    ("add", "ok", "true", True), ("add", "ok", " False ", False),
    ("add", "ok", "1", True), ("add", "ok", "0", False), ("add", "ok", "2", "2"),
    ("add", "ok", "(True)", "(True)"),
    ("add", "tags", "[1, 2.50, \"x\", null, true]", [1, 2.5, "x", None, True]),
    ("add", "tags", "['a', \"b\", None]", ["a", "b", None]),
    ("add", "tags", "(1, 2)", [1, 2]), ("add", "tags", "{3, 1}", [3, 1]),
    ("add", "tags", "{\"k\": [1]}", {"k": [1]}), ("add", "tags", "7", 7),
    ("add", "tags", "\"s\"", "s"), ("add", "tags", "a, b", "a, b"),
    ("add", "tags", "[1,]", [1]), ("add", "tags", "[", "["),
    ("add", "tags", "[1e999]", "[1e999]"), ("add", "tags", "[NaN]", "[NaN]"),
    ("get", "o", "{\"b\": 1, \"a\": {\"x\": [ ]}, \"b\": 2}",
     {"b": 2, "a": {"x": []}}),
    ("get", "o", "{'k': 'it\\'s', 'n': 1}", {"k": "it's", "n": 1}),
    ("get", "o", "{\"u\": \"\\u00e9\\ud83d\\ude00\"}", {"u": "é\U0001f600"}),
    ("get", "o", "{\"u\": \"\\ud83d\"}", "{\"u\": \"\\ud83d\"}"),
    ("get", "o", "{\n  \"a\": 1e2,\n  \"b\": -0.0\n}", {"a": 100.0, "b": -0.0}),
    ("get", "o", "'text'", "'text'"),
    ("get", "any", "5", 5), ("get", "any", "None", None),
    ("get", "any", "'5'", "5"), ("get", "any", "five", "five"),
    ("get", "any", "1, 2", [1, 2]), ("get", "any", "{1: 2}", {"1": 2}),
    ("get", "any", "b'x'", "b'x'"), ("get", "any", "2j", "2j"),
    ("get", "any", "'a' 'b'", "ab"), ("get", "any", "-5", -5),
    ("get", "city", "null", None), ("get", "city", "nullable", "nullable"),
    ("get", "city", "true", "true"), ("get", "city", "nul", "nul"),
    ("get", "city", "\n\n", "\n\n"), ("get", "city", "a\u0001b\tc", "a\u0001b\tc"),
    ("get", "city", "\"q\" \\ /", "\"q\" \\ /"),
    ("bare", "x", "4", 4), ("bare", "y", "4.5", 4.5),
    ("bare", "z", "{\"a\": 1}", {"a": 1}), ("bare", "w", "4", "4"),
    ("odd", "none", "3", 3), ("odd", "list", "3", "3"), ("odd", "ref", "3", "3"),
    ("odd", "u", "3", 3), ("odd", "e", "3", "3"),
)] + [
    ("an infinity makes the block content",
     "x" + call("get", ("n", "inf")) + "y", "x" + call("get", ("n", "inf")) + "y",
     []),
    ("so does a number beyond all", call("get", ("n", "1e400")),
     call("get", ("n", "1e400")), []),
]

DIRECT = [
    ("\nIntro<think>reasoning</think>\nAnswer", "reasoning", "\nIntroAnswer",
     []),
    ("plain", "", "plain", []),
    ("a</think>b", "", "a</think>b", []),
    ("hello " + F1, "", "hello ", [made("f", a="1")]),
    ("<tool_call>\n<think>\n</tool_call>", "",
     "<tool_call>\n<think>\n</tool_call>", []),
]


def case(name, text, inside, tools, expected=None):
    r = parse(text, tools, inside)
    if expected is not None:
        if expected["calls"] is None:
            expected["calls"] = r["calls"]
        else:
            expected["calls"] = [
                {"name": c["name"], "arguments": json.dumps(
                    c["arguments"], ensure_ascii=False)}
                for c in expected["calls"]]
        same = json.dumps(r) == json.dumps(expected)
        assert same, "%s\n%s\n%s\n%s" % (name, text, r, expected)
    return {"name": name, "text": text, "thinking": inside, **r}


def random_cases(n):
    rng = random.Random(7)
    parts = ["<tool_call>", "</tool_call>", "<function=", "</function>", ">",
             "<function=f>", "<function=add>", "<parameter=a>", "<parameter=",
             "</parameter>", "\n", "\n", " ", "x", "1", "null", "<", "</",
             "ping", "é", "　", "\"", "<function ", "<parameter=note>",
             "<tool_call>\n<function=f>\n", "</function>\n</tool_call>",
             "<think>", "</think>", "[1, 2]", "<parameter=tags>",
             "<function=ping></function>", "text"]
    for i in range(n):
        text = "".join(rng.choice(parts) for _ in range(rng.randrange(1, 14)))
        yield case("random %d" % i, text, rng.random() < 0.3, TOOLS)


def write(where, name, cases, tools):
    with open("%s/%s.json" % (where, name), "w") as f:
        json.dump({"tools": tools, "cases": list(cases)}, f, indent=1,
                  ensure_ascii=False)
        f.write("\n")


def main():
    where = sys.argv[1]

    def result(reasoning, content, calls):
        return {"reasoning": reasoning, "content": content, "calls": calls}

    write(where, "reasoning", [
        case(n, t, True, TOOLS, result(r, c, k))
        for n, t, r, c, k in REASONING] + [
        case(t, t, False, TOOLS, result(r, c, k)) for t, r, c, k in DIRECT],
        TOOLS)
    write(where, "calls", [case(n, t, False, TOOLS, result("", c, k))
                           for n, t, c, k in CALLS], TOOLS)
    write(where, "values", [case(n, t, False, TOOLS, result("", c, k))
                            for n, t, c, k in VALUES], TOOLS)
    write(where, "no-tools", [
        case(n, t, False, None, result("", t, []))
        for n, t, _, _ in CALLS if "<think>" not in t], None)
    write(where, "random", random_cases(400), TOOLS)


main()
