#!/usr/bin/env python3
"""Makes tests/golden/chat: 500 random conversations, and the texts that jinja2 makes of them, in the environment that
transformers gives to chat templates, for every template *.jinja there: FNV-1a of the text, 8 hexadecimal digits of it,
"refused" where rendering raises. And forms.jsonl and forms.txt: conversations of 25 forms, and the hashes of the texts that
transformers makes of them, all of apply_chat_template included. The templates are our own; they use the constructs of the
templates of well-known models.

    python tests/golden/make_chat.py        needs jinja2 and transformers
"""

import glob
import json
import os
import random

from transformers.utils.chat_template_utils import _compile_jinja_template

from chat_forms import FORMS, as_objects, transformers_text

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat")
N = 500
WORDS = ["the", "sum", "of", "two", "knights", "is", "naïve", "Σίσυφος", "数学", "😀", "e\u0301", "<|im_end|>", "</s>", "[INST]",
         "a\tb", "\"quoted\"", "it's", "back\\slash", "{{ x }}", "{% if %}", "<b>", "&amp;", "3.14", "-7", "CAPS", "\u00a0", "\u200b",
         "ß", "/no_think", "<think>", "</think>", "x = 1;", "\x7f"]
SEPARATORS = [" ", " ", " ", " ", "\n", "\n\n", "  ", "\r\n", "\t"]


def text(r, most=12):
    out = r.choice(["", "", " ", "\n"])
    for _ in range(r.randint(0, most)):
        out += r.choice(WORDS) + r.choice(SEPARATORS)
    return out if r.random() < 0.3 else out.strip()


def value(r, depth=0):
    kinds = [lambda: text(r, 2), lambda: r.randint(-10, 10**r.randint(1, 12)), lambda: r.choice([True, False, None]),
             lambda: r.choice([0.5, 1e-7, 1e16, 123456.789, -2.0, 1 / 3, 1e22, 5e-324])]
    if depth < 2:
        kinds += [lambda: [value(r, depth + 1) for _ in range(r.randint(0, 3))], lambda: arguments(r, depth + 1)]
    return r.choice(kinds)()


def arguments(r, depth=0):
    return {r.choice(["a", "b", "query", "Zeit", "é", "n 1"]): value(r, depth) for _ in range(r.randint(0, 3))}


def call(r):
    made = {"type": "function", "function": {"name": r.choice(["search", "add", "f"]), "arguments": arguments(r)}}
    if r.random() < 0.8:
        made["id"] = "".join(r.choice("abc123") for _ in range(9))
    return made


def content(r):
    if r.random() < 0.06:
        return [{"type": "text", "text": text(r)} if r.random() < 0.8 else {"type": "image"} for _ in range(r.randint(0, 3))]
    return text(r)


def tool(r):
    names = [r.choice(["a", "b", "query", "n"]) for _ in range(r.randint(0, 3))]
    return {"type": "function", "function": {"name": r.choice(["search", "add", "f"]), "description": text(r, 3), "parameters": {
        "type": "object", "properties": {n: {"type": r.choice(["string", "integer"])} if r.random() < 0.8 else {} for n in names},
        "required": names[:1]}}}


def conversation(r):
    messages = [{"role": "system", "content": text(r)}] if r.random() < 0.5 else []
    for _ in range(r.randint(1, 4)):
        messages.append({"role": "user", "content": content(r)})
        if r.random() < 0.15:
            messages.append({"role": "assistant", "content": r.choice([None, "", text(r)]), "tool_calls": [call(r) for _ in range(r.randint(1, 2))]})
            messages.append({"role": "tool", "content": text(r), "tool_call_id": "abc123abc"})
        messages.append({"role": "assistant", "content": content(r)})
        if r.random() < 0.1:
            messages[-1]["reasoning_content"] = text(r)
    if r.random() < 0.25:
        messages.pop()
    if r.random() < 0.05:
        r.shuffle(messages)
    given = {"messages": messages, "bos_token": "<s>", "eos_token": "</s>"}
    if r.random() < 0.8:
        given["add_generation_prompt"] = r.random() < 0.4
    if r.random() < 0.2:
        given["tools"] = [tool(r) for _ in range(r.randint(1, 2))]
    if r.random() < 0.2:
        given["enable_thinking"] = r.random() < 0.5
    if r.random() < 0.1:
        given["tools_in_user_message"] = False
    return given


def fnv(data):
    h = 14695981039346656037
    for b in data:
        h = ((h ^ b) * 1099511628211) % 2**64
    return "%08x" % (h >> 32)


def main():
    r = random.Random(26)
    conversations = [conversation(r) for _ in range(N)]
    with open(os.path.join(HERE, "conversations.jsonl"), "w", encoding="utf-8") as f:
        for c in conversations:
            f.write(json.dumps(c, ensure_ascii=False, separators=(",", ":")) + "\n")
    names = sorted(os.path.basename(p)[:-6] for p in glob.glob(os.path.join(HERE, "*.jinja")))
    columns = []
    for name in names:
        with open(os.path.join(HERE, name + ".jinja"), encoding="utf-8") as f:
            template = _compile_jinja_template(f.read())
        column = []
        for c in conversations:
            try:
                column.append(fnv(template.render(**json.loads(json.dumps(c))).encode()))
            except Exception:
                column.append("refused ")
        columns.append(column)
        print("%-14s %3d of %d are refused" % (name, sum(h == "refused " for h in column), N))
    with open(os.path.join(HERE, "expected.txt"), "w", encoding="ascii") as f:
        f.write(" ".join("%-8s" % n for n in names).rstrip() + "\n")
        for row in zip(*columns):
            f.write(" ".join(row).rstrip() + "\n")
    write_forms(["environment", "tools", "thinking", "iterators"])


def write_forms(names):
    """The arguments of calls as objects: the text for arguments in a string is that of the same arguments as an object."""
    with open(os.path.join(HERE, "forms.jsonl"), "w", encoding="utf-8") as f:
        for given in FORMS.values():
            f.write(json.dumps(given, ensure_ascii=False, separators=(",", ":")) + "\n")
    with open(os.path.join(HERE, "forms.txt"), "w", encoding="ascii") as f:
        for name in names:
            with open(os.path.join(HERE, name + ".jinja"), encoding="utf-8") as template:
                source = template.read()
            for number, given in enumerate(FORMS.values()):
                text = transformers_text(source, as_objects(given))
                f.write("%s %d %s\n" % (name, number, fnv(text.encode()) if isinstance(text, str) else "refused"))


if __name__ == "__main__":
    main()
