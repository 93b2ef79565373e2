"""25 forms of conversations, and the texts that transformers makes of them: for make_chat.py and compare_chat.py."""

import copy
import json

from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "sep_token": "<sep>",
           "cls_token": "<cls>", "mask_token": "<mask>", "image_token": "<image>", "eot_token": "<eot>"}


def user(text="What is the weather in Oslo?"):
    return {"role": "user", "content": text}


def answer(text="It rains.", **more):
    return {"role": "assistant", "content": text, **more}


def call(arguments, name="get_weather", **more):
    return {"type": "function", "id": "abc123def", "function": {"name": name, "arguments": arguments}, **more}


def result(text="{\"rain\": true}", **more):
    return {"role": "tool", "name": "get_weather", "tool_call_id": "abc123def", "content": text, **more}


OBJECT = {"city": "Oslo", "days": 3, "metric": True, "limit": None, "at": [1.5, -2, 1e22], "in": {"é": "\"q\" <b> & 'x'\n"}}
STRING = json.dumps(OBJECT, ensure_ascii=False)
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather at a place.", "parameters": {
    "type": "object", "properties": {
        "city": {"type": "string", "description": "A town."}, "days": {"type": "integer", "default": 1},
        "units": {"type": "string", "enum": ["C", "F"]}, "more": {"type": ["string", "null"]},
        "list": {"type": "array", "items": {"type": "number"}},
        "in": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}},
    "required": ["city"]}, "return": {"type": "string"}}}
BARE = {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}


def parts(*texts):
    return [{"type": "text", "text": t} for t in texts]


def tool_turn(arguments, **more):
    return {"messages": [user(), answer(more.pop("content", ""), tool_calls=[call(arguments)]), result(), answer()],
            "tools": [TOOL, BARE], **more}


FORMS = {
    "plain": {"messages": [user(), answer()]},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, user(), answer()]},
    "turns": {"messages": [user("a"), answer("b"), user("c"), answer("d"), user("e"), answer("f")]},
    "prompt": {"messages": [{"role": "system", "content": "Be brief."}, user("a"), answer("b"), user("c")], "add_generation_prompt": True},
    "tools unused": {"messages": [user(), answer()], "tools": [TOOL]},
    "call": tool_turn(OBJECT),
    "call string": tool_turn(STRING),
    "call none": tool_turn(OBJECT, content=None),
    "call missing": {"messages": [user(), {"role": "assistant", "tool_calls": [call({})]}, result("1"), user("b")], "tools": [BARE],
                     "add_generation_prompt": True},
    "two calls": {"messages": [{"role": "system", "content": "s"}, user(), answer("Let me see.", tool_calls=[
        call({"city": "A"}), call({"city": "B"}, id="def456abc")]), result("1"), result("2", tool_call_id="def456abc")],
        "tools": [TOOL], "add_generation_prompt": True},
    "call bare": {"messages": [user(), {"role": "assistant", "content": "", "tool_calls": [{"name": "now", "arguments": {"x": 1}}]},
                               {"role": "tool", "content": "12"}, answer()], "tools": [BARE["function"]]},
    "function call": {"messages": [user(), {"role": "assistant", "content": None, "function_call": {"name": "now", "arguments": "{}"}},
                                   {"role": "function", "name": "now", "content": "12"}, answer()]},
    "content none": {"messages": [{"role": "system", "content": None}, user(), {"role": "assistant", "content": None}, user("b")]},
    "content missing": {"messages": [user(), {"role": "assistant"}]},
    "empty": {"messages": [{"role": "system", "content": ""}, user(""), answer(""), user(" \n"), answer("  x  ")]},
    "parts": {"messages": [{"role": "system", "content": parts("s")}, {"role": "user", "content": parts("a", "b")},
                           {"role": "assistant", "content": parts("c")}]},
    "image": {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}, answer("A cat.")]},
    "reasoning": {"messages": [user("a"), answer("b", reasoning_content="r1"), user("c"), answer("d", reasoning_content="r2\n")]},
    "thinking": {"messages": [user("a"), answer("b", thinking="t1"), user("c"), {"role": "assistant", "thinking": "t2", "content": "d"}]},
    "think text": {"messages": [user("a"), answer("<think>\nr\n</think>\n\nb"), user("c /no_think"), answer("<think></think>d", reasoning="r")]},
    "switches": {"messages": [user("a")], "add_generation_prompt": True, "enable_thinking": False, "thinking": False,
                 "reasoning_effort": "low", "date_string": "26 Jul 2024", "xml_tools": False},
    "documents": {"messages": [user()], "documents": [{"title": "T1", "text": "One."}, {"title": "T2", "text": "Two."}],
                  "add_generation_prompt": True},
    "roles": {"messages": [{"role": "developer", "content": "dev"}, user("a"), user("b"), answer("c"), answer("d")]},
    "late system": {"messages": [user("a"), {"role": "system", "content": "s"}, answer("b"), result("late")]},
    "odd text": {"messages": [user("</s><s>[INST] {{ x }} {% if %} <|im_end|>"), answer("naïve 😀 \u00a0\u2028数学\tß\x7f\r\n \"q\" 'x' &amp; \\n")]},
}


def transformers_text(source, given):
    given = copy.deepcopy(given)
    messages = _normalize_chat_messages(given.pop("messages"))
    names = {k: given.pop(k) for k in ("tools", "documents", "add_generation_prompt") if k in given}
    try:
        return render_jinja_template([messages], chat_template=source, **names, **{**SPECIAL, **given})[0][0]
    except Exception as error:
        return error


def as_objects(given):
    """The conversation with the arguments of its calls as objects."""
    given = copy.deepcopy(given)
    for message in given["messages"]:
        calls = [c.get("function", c) for c in message.get("tool_calls") or []] + [message.get("function_call") or {}]
        for one in calls:
            if isinstance(one.get("arguments"), str):
                one["arguments"] = json.loads(one["arguments"])
    return given
