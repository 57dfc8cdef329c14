"""Conversations that chat templates are tried on: (name, context)."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather in a city; \"quoted\", <tagged> & 'single'",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": ["integer", "null"], "default": None, "minimum": 1.5},
                "detail": {"type": "object", "properties": {"wind": {"type": "boolean"}},
                           "required": ["wind"]},
                "items": {"type": "array", "items": {"type": "number"}},
            },
            "required": ["city"],
        },
        "return": {"type": "string", "description": "The weather"},
    },
}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"},
                                                        "b": {"type": "number"}}},
    },
}


def call(name, arguments, identity="call_1"):
    return {"id": identity, "type": "function",
            "function": {"name": name, "arguments": arguments}}


USER = {"role": "user", "content": "What is 2 + 2?"}
ASSISTANT = {"role": "assistant", "content": "4."}
SYSTEM = {"role": "system", "content": "You are terse."}

MESSAGES = [
    ("user", [USER]),
    ("pair", [USER, ASSISTANT]),
    ("system", [SYSTEM, USER, ASSISTANT]),
    ("turns", [SYSTEM, USER, ASSISTANT, {"role": "user", "content": "And 3 + 3?"},
               {"role": "assistant", "content": "6."}, {"role": "user", "content": "Thanks"},
               {"role": "assistant", "content": "Welcome."}]),
    ("unicode", [{"role": "user", "content": "Grüße 👋🏽, 你好, שלום, \u0130stanbul ﬁ ß"},
                 {"role": "assistant", "content": "e\u0301 \u200b ΑΣ ΟΔΥΣΣΕΥΣ 🎉\n\ttab"}]),
    ("spaces", [{"role": "user", "content": "  \n leading and trailing \n\n"},
                {"role": "assistant", "content": "\n\n  spaced\u00a0 \n"}]),
    ("empty", [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]),
    ("thinking in text", [
        USER, {"role": "assistant", "content": "<think>\n2 and 2\n</think>\n\n4."},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "<think>\nyes\n</think>\n\nSure."}]),
    ("thinking apart", [
        USER, {"role": "assistant", "content": "4.", "reasoning_content": "2 and 2",
               "thinking": "2 and 2", "reasoning": "2 and 2"},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "Sure.", "reasoning_content": "yes\n",
         "thinking": "yes\n", "reasoning": "yes\n"}]),
    ("tool call", [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [
            call("get_weather", {"city": "Zürich", "days": 1.5, "unit": None, "deep": {
                "list": [1, 2.0, True, None, "x\n\"y\""], "empty": {}, "big": 1e22}})]},
        {"role": "tool", "name": "get_weather", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "assistant", "content": "It is sunny."}]),
    ("tool calls", [
        SYSTEM, USER,
        {"role": "assistant", "content": "Let me see.", "tool_calls": [
            call("add", {"a": 0.1, "b": -3}, "call00001"),
            call("add", {"a": 1e-7, "b": 100000.0}, "call00002")]},
        {"role": "tool", "name": "add", "tool_call_id": "call00001", "content": "0.1"},
        {"role": "tool", "name": "add", "tool_call_id": "call00002", "content": "{\"sum\": 1}"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "More"},
        {"role": "assistant", "content": "No."}]),
    ("tool call, content none", [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call("add", {"a": 1, "b": 2})]},
        {"role": "tool", "name": "add", "tool_call_id": "call_1", "content": "3"},
        {"role": "assistant", "content": "3."}]),
    ("tool call, arguments as text", [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [
            call("add", "{\"a\": 1, \"b\": [2]}"), call("add", "{}", "call_2")]},
        {"role": "tool", "name": "add", "content": "3", "tool_call_id": "call_1"}]),
    ("calls without function", [
        USER, {"role": "assistant", "content": "", "tool_calls": [
            {"name": "add", "arguments": {"a": 1}}]}]),
    ("parts", [
        {"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"},
                                     {"type": "text", "text": "what?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]}]),
    ("developer", [{"role": "developer", "content": "Be kind."}, USER, ASSISTANT]),
    ("system late", [USER, SYSTEM, ASSISTANT]),
    ("two users", [USER, USER, ASSISTANT]),
    ("assistant first", [ASSISTANT, USER]),
    ("unknown role", [USER, {"role": "critic", "content": "Hm."}]),
    ("no content", [USER, {"role": "assistant"}]),
    ("no messages", []),
    ("long", [dict(m) for _ in range(20) for m in (USER, ASSISTANT)]),
]

EXTRAS = [
    ("plain", {}),
    ("prompt", {"add_generation_prompt": True}),
    ("tools", {"tools": [WEATHER, ADD], "add_generation_prompt": True}),
    ("no thinking", {"enable_thinking": False, "add_generation_prompt": True,
                     "reasoning_effort": "high", "thinking": False}),
    ("documents", {"documents": [{"title": "A", "text": "Text of A", "contents": "x"}],
                   "builtin_tools": ["python", "browser"], "date_string": "1 Jan 2026",
                   "model_identity": "You are a test.", "enable_thinking": True}),
]


def contexts():
    for name, messages in MESSAGES:
        for extra_name, extra in EXTRAS:
            context = {"messages": messages, "tools": None, "documents": None,
                       "add_generation_prompt": False, "bos_token": "<s>", "eos_token": "</s>",
                       "pad_token": "<pad>", "unk_token": "<unk>"}
            context.update(extra)
            yield f"{name}, {extra_name}", context
