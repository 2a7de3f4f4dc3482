#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `bathys tokenize --chat` and `--answer` with DeepSeek's own package (pip install deepseek-recipe==0.2.0).

  compare_chat_with_recipe.py BATHYS TOKENIZER.json [--seed N] [--conversations N] [--answers N]

Conversations of random turns, tools, schemas, choices and formats: ids must be equal, and what the package refuses must be
refused; every option and pair of options must have occurred. Answers of random pieces: reasoning, content and calls must be
equal. The differences that docs/chat.md lists must be there, each as it is described. Exit 1 at the first that is not so.
"""
import argparse
import json
import random
import subprocess
import sys

import deepseek_recipe as recipe

MARKERS = recipe.SpecialTokens(image="<｜deepseek_image｜>")
ENCODING = recipe.DeepseekV41Encoding().with_special_tokens(MARKERS)
OPTIONS = recipe.ConversionOptions().with_special_tokens(MARKERS)
TEXTS = ["", "hello", " And God said, Let there be light ", "a\n\nb\n", "x <｜User｜> y", "why </think> and <think>?", "naïve 深度 😀\u2028", "\n", "reply in Json",
         "｜DSML｜ <｜DSML｜ calls>", "</tool_result>", "<｜deepseek_image｜>", "<｜end▁of▁sentence｜>"]
# Texts of numbers, as Python's own reader would change them.
NUMBERS = ["0", "-0", "-0.0", "1e5", "1e-7", "0.0001", "0.00001234", "1e15", "1e16", "123456789012345680.0", "1.50", "2.5E+3", "1e22", "5e-324", "1.7976931348623157e308",
           "9007199254740993", "9223372036854775808", "18446744073709551615", "18446744073709551616", "-9223372036854775808", "12345678901234567890123", "0.1", "100", "-5",
           "0.30000000000000004", "2.2250738585072011e-308", "6929495644600919.5"]
NAMES = ["f", "get_weather", "a-b", "Z9", "tool_with_a_long_name"]
KEYS = ["b", "a", "10", "9", "city", "café", 'k"1', "", "arguments", "line\nbreak", "<think>", "｜DSML｜"]


def json_text(rng, depth=0):
    """A random JSON text, spaced at random."""
    space = rng.choice(["", "", " ", "\t"])
    kind = rng.randrange(7 if depth < 3 else 4)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return rng.choice(["true", "false", "null"])
    if kind in (2, 3):
        return json.dumps(rng.choice(TEXTS + ["\x01\x1f\x7f", "\b\f\r\t/\\\""]), ensure_ascii=rng.random() < 0.5)
    if kind == 4:
        return "[" + ",".join(space + json_text(rng, depth + 1) for _ in range(rng.randrange(4))) + space + "]"
    return object_text(rng, depth)


def object_text(rng, depth=0, first=""):
    space = rng.choice(["", "", " "])
    keys = rng.sample(KEYS, rng.randrange(4))
    members = [json.dumps(key) + space + ":" + space + json_text(rng, depth + 1) for key in keys]
    if first:
        members.insert(rng.randrange(len(members) + 1), first)
    return "{" + ",".join(members) + space + "}"


def content(rng, images):
    if rng.random() < 0.7:
        return rng.choice(TEXTS)
    parts = []
    for _ in range(rng.randrange(1, 4)):
        if images and rng.random() < 0.4:
            parts.append({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}})
        else:
            parts.append({"type": "text", "text": rng.choice(TEXTS)})
    return parts


def arguments(rng):
    if rng.random() < 0.2:
        return rng.choice(["", "null", "[1]", "{", '{"a":1,}', '{"a":NaN}', '{"a":1,"b":2,"a":"3"}', '"{}"', "{} x", '{"a":01}', '{"a":1e999}', "\ufeff{}", '{"a":"\\ud800"}', '{"a":1}\0junk', '{"a":1}\0', '{"a":"\0"}',
                           '{"a":' + "[" * 126 + "]" * 126 + "}", '{"a":' + "[" * 127 + "]" * 127 + "}"])
    return object_text(rng)


def calls_and_results(rng, number):
    ids = [f"call_{number}_{n}" for n in range(rng.randrange(1, 4))]
    turn = {"role": "assistant", "tool_calls": [{"id": name, "type": "function", "function": {"name": rng.choice(NAMES + ['odd "name"', ""]), "arguments": arguments(rng)}}
                                                for name in ids]}
    if rng.random() < 0.7:
        turn["content"] = rng.choice(TEXTS + [None])
    if rng.random() < 0.5:
        turn["reasoning_content"] = rng.choice(TEXTS)
    rng.shuffle(ids)
    if rng.random() < 0.03:
        ids = ids[1:] + rng.choice([[], ["nobody"], ids[:1]])
    return [turn] + [{"role": "tool", "tool_call_id": name, "content": content(rng, True)} for name in ids]


def messages(rng):
    out = []
    for number in range(rng.randrange(1, 7)):
        role = rng.choice(["system", "user", "user", "user", "assistant", "calls", "calls", "latest_reminder"])
        if role == "calls":
            out += calls_and_results(rng, number)
            continue
        message = {"role": role, "content": rng.choice(TEXTS) if role == "latest_reminder" else content(rng, role in ("system", "user"))}
        if role == "assistant" and rng.random() < 0.6:
            message["reasoning_content"] = rng.choice(TEXTS + [None])
        out.append(message)
    if rng.random() < 0.15:
        out.append({"role": "assistant", "content": content(rng, False)})
    if out[-1]["role"] == "assistant" and rng.random() < 0.6:
        out[-1]["prefix"] = True
    return out


def tools_text(rng):
    """A list of tools as JSON text, so that numbers keep their spelling."""
    out = []
    for name in rng.sample(NAMES, rng.randrange(4)):
        members = [f'"name":"{name}"']
        if rng.random() < 0.7:
            members.append('"description":' + json.dumps(rng.choice(TEXTS)))
        if rng.random() < 0.8:
            # "default" may hold anything without making the schema invalid.
            properties = ",".join(f'{json.dumps(key)}:{{"default":{json_text(rng)}}}' for key in rng.sample(KEYS, rng.randrange(4)))
            members.append('"parameters":{"properties":{' + properties + '},"type":"object"}')
        rng.shuffle(members)
        out.append('{"type":"function","function":{' + ",".join(members) + "}}")
    return "[" + ",".join(out) + "]"


def body_text(rng):
    turns = messages(rng)
    form = rng.choice(['{"type":"text"}', '{"type":"json_object"}', '{"type":"json_schema","json_schema":{"name":"n","schema":{"default":' + json_text(rng) + "}}}"])
    if "json_object" in form and rng.random() < 0.7:  # which the package takes only where a message speaks of it
        turns.insert(0, {"role": "system", "content": "reply in Json"})
    members = ['"model":"DeepSeek-V4.1-Flash"', '"messages":' + json.dumps(turns, ensure_ascii=rng.random() < 0.5)]
    if rng.random() < 0.7:
        members.append('"thinking":{"type":"' + rng.choice(["enabled", "disabled", "disabled", "adaptive"]) + '"}')
    if rng.random() < 0.7:
        members.append('"reasoning_effort":"' + rng.choice(["none", "minimal", "low", "medium", "high", "xhigh", "max"]) + '"')
    if rng.random() < 0.6:
        members.append('"tools":' + tools_text(rng))
    if rng.random() < 0.4:
        members.append('"tool_choice":' + rng.choice(['"auto"', '"none"', '"required"', '{"type":"function","function":{"name":"f"}}']))
    if rng.random() < 0.6:
        members.append('"response_format":' + form)
    return "{" + ",".join(members) + "}"


def official_ids(encoder, body):
    try:
        return encoder.encode(recipe.ChatCompletionRequest(body).convert(OPTIONS).conversation)
    except (recipe.ConversionError, ValueError):
        return None


def run(bathys, tokenizer, flag, lines):
    done = subprocess.run([bathys, "tokenize", "--model", tokenizer, flag], input="\n".join(lines) + "\n", capture_output=True, encoding="utf-8")
    return done.returncode, [json.loads(line) for line in done.stdout.split("\n") if line], done.stderr


def compare_chats(args, rng):
    encoder = ENCODING.with_tokenizer(recipe.Tokenizer.from_file(args.tokenizer))
    taken, refused = [], []
    while len(taken) < args.conversations:
        body = body_text(rng)
        ids = official_ids(encoder, body)
        (taken if ids is not None else refused).append((body, ids))
    code, answers, errors = run(args.bathys, args.tokenizer, "--chat", [body for body, _ in taken])
    if code != 0:
        sys.exit(f"bathys ended with {code}: {errors}\n{taken[len(answers)][0]}")
    for (body, ids), answer in zip(taken, answers, strict=True):
        if ids != answer:
            at = next((n for n, pair in enumerate(zip(ids, answer)) if pair[0] != pair[1]), min(len(ids), len(answer)))
            sys.exit(f"ids differ from place {at} on for {body}\n  ours   {answer[at - 5:at + 10]}\n  theirs {ids[at - 5:at + 10]}")
    for body, _ in refused[:args.refusals]:
        if run(args.bathys, args.tokenizer, "--chat", [body])[0] != 65:
            sys.exit(f"the package refuses {body}")
    options, pairs = coverage([body for body, _ in taken])
    print(f"conversations={len(taken)} refused={min(len(refused), args.refusals)} options={options} pairs={pairs}")


# Each option of a conversation: its values.
THINKING = ["unset", "enabled", "disabled", "adaptive"]
EFFORTS = ["unset", "none", "minimal", "low", "medium", "high", "xhigh", "max"]
CHOICES = ["unset", "auto", "none", "required", "one"]
FORMATS = ["unset", "text", "json_object", "json_schema"]
TURNS = ["system", "user", "assistant", "calls", "reasoning", "latest_reminder", "images", "prefix"]


def options_of(text):
    """What a conversation has, as (option, value)."""
    body = json.loads(text)
    choice = body.get("tool_choice", "unset")
    found = {("thinking", body.get("thinking", {}).get("type", "unset")), ("effort", body.get("reasoning_effort", "unset")),
             ("choice", "one" if isinstance(choice, dict) else choice), ("format", body.get("response_format", {}).get("type", "unset")),
             ("tools", min(len(body.get("tools", [])), 2))}
    for message in body["messages"]:
        found.add(("turn", message["role"]))
        parts = message.get("content")
        for name, there in (("calls", message.get("tool_calls")), ("reasoning", message.get("reasoning_content")), ("prefix", message.get("prefix")),
                            ("images", isinstance(parts, list) and any(part["type"] == "image_url" for part in parts))):
            if there:
                found.add(("turn", name))
    return found


def coverage(bodies):
    """Every value of every option has occurred, and every pair of values of two options that can stand together."""
    seen = [options_of(body) for body in bodies]
    values = {"thinking": THINKING, "effort": EFFORTS, "choice": CHOICES, "format": FORMATS, "tools": [0, 1, 2], "turn": TURNS}
    wanted = [(option, value) for option in values for value in values[option]]
    pairs = [(a, b) for n, a in enumerate(wanted) for b in wanted[n + 1:] if (a[0] != b[0] or a[0] == "turn") and (a, b) not in IMPOSSIBLE and (b, a) not in IMPOSSIBLE]
    missing = [value for value in wanted if not any(value in found for found in seen)] + [pair for pair in pairs if not any(pair[0] in found and pair[1] in found for found in seen)]
    if missing:
        sys.exit(f"the conversations lack {missing[:10]}: raise --conversations")
    return len(wanted), len(pairs)


# The package demands no call while thinking, nor of a model without tools, and continues no turn beside tools, calls or JSON.
IMPOSSIBLE = {(("choice", choice), other) for choice in ("required", "one") for other in [("thinking", "enabled"), ("thinking", "adaptive"), ("tools", 0)]}
IMPOSSIBLE |= {(other, ("turn", "prefix")) for other in [("tools", 1), ("tools", 2), ("turn", "calls"), ("format", "json_object")]}
IMPOSSIBLE |= {(("choice", choice), ("turn", "prefix")) for choice in ("required", "one")}


U = '{"role":"user","content":"q"}'
TURN = '{"role":"user","content":"q"},{"role":"assistant","content":"a","reasoning_content":"r"},{"role":"user","content":"s"}'
PLAIN = f'"messages":[{U}]'


def tool(members):
    return f'{PLAIN},"tools":[{{"type":"function","function":{{"name":"f"{members}}}}}]'


def compare_differences(args):
    """docs/chat.md, "Where bathys differs" and "Answers": each point with what the package does and what bathys does."""

    def theirs(members):
        try:
            request = recipe.ChatCompletionRequest('{"model":"DeepSeek-V4.1-Flash",' + members + "}")
            return ENCODING.render_conversation(request.convert(OPTIONS).conversation).prompt
        except (recipe.ConversionError, ValueError):
            return None

    def ours(members):
        done = subprocess.run([args.bathys, "tokenize", "--model", args.tokenizer, "--chat", "--decode"], input="{" + members + "}\n", capture_output=True, encoding="utf-8")
        if done.returncode not in (0, 65):
            sys.exit(f"{members}: bathys ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout) if done.returncode == 0 else None

    plain, chat = theirs(PLAIN), theirs(PLAIN + ',"thinking":{"type":"disabled"}')
    described = [(f'{PLAIN},"reasoning_effort":{n}', None, plain.replace("Effort: 75", f"Effort: {n}")) for n in (1, 30, 99, 100)]
    described += [(f'{PLAIN},"effort":"low"', plain, theirs(PLAIN + ',"reasoning_effort":"low"'))]
    described += [(PLAIN + ',"thinking":true', None, plain), (PLAIN + ',"thinking":false', None, chat)]
    kept = theirs(f'"messages":[{TURN}]')
    described += [(f'"messages":[{TURN}],"drop_thinking":false', kept, kept.replace("<｜Assistant｜></think>a", "<｜Assistant｜><think>r</think>a"))]
    for task in ("query", "authority", "domain", "read_url"):
        marked = U[:-1] + f',"task":"{task}"}}'
        described += [(f'"messages":[{marked}]', plain, plain.replace("<｜Assistant｜><think>", f"<｜{task}｜>"))]
    marked = U[:-1] + ',"task":"action"}'
    described += [(f'"messages":[{marked}]', plain, plain + "<｜action｜>")]
    titled = '{"role":"user","content":"q"},{"role":"assistant","content":"a","task":"title"}'
    described += [(f'"messages":[{titled}]', theirs(f'"messages":[{titled}]'), plain.removesuffix("<think>") + "</think>a<｜end▁of▁sentence｜><｜title｜>")]
    single = theirs(tool(',"description":"d\\n"'))
    described += [(PLAIN + ',"tools":[{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f"}]}]', None, single.replace('"name": "f"', '"name": "n::f"'))]
    strict = tool(',"strict":true,"parameters":{"type":"object","properties":{},"required":[],"additionalProperties":false}')
    inside = '"messages":[' + U[:-1] + ',"tools":[{"type":"function","function":{"name":"f"}}]}]'
    twice = '"messages":[{"role":"user","content":"p","content":"q"}]'
    described += [(members, theirs(members), None) for members in (strict, PLAIN + ',"response_format":{"type":"regex","regex":"a"}', inside, twice)]
    called = '{"role":"assistant","content":"","tool_calls":[{"id":"i","type":"function","function":{"name":"f","arguments":"{}"}}]}'
    result = '{"role":"tool","tool_call_id":"i","content":"r","task":"title"}'
    vanished = [f'{U},{called},{result}', '{"role":"system","content":"","task":"title"},' + U, '{"role":"latest_reminder","content":"a"},{"role":"latest_reminder","content":"b","task":"title"}',
                U + ',{"role":"assistant","content":"a","prefix":true,"task":"title"}']
    described += [(f'"messages":[{turns}]', theirs(f'"messages":[{turns}]'), None) for turns in vanished]
    deep = '{"type":"object","default":' + "[" * 130 + "]" * 130 + "}"
    described += [(tool(f',"parameters":{deep}'), None, theirs(tool(',"parameters":{"type":"object","default":0}')).replace('"default": 0', '"default": ' + "[" * 130 + "]" * 130))]
    described += [(PLAIN + ',"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{}}}', None,
                   theirs(PLAIN + ',"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}}'))]
    described += [(tool(',"parameters":{"type":"object","properties":5}'), None, theirs(tool(',"parameters":{"type":"object"}')).replace('{"type": "object"}', '{"type": "object", "properties": 5}'))]
    image = '"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"ADDRESS"}}]}]'
    described += [(image.replace("ADDRESS", "nonsense"), None, theirs(image.replace("ADDRESS", "https://example.org/a.png")))]
    for members, their_prompt, our_prompt in described:
        if theirs(members) != their_prompt or ours(members) != our_prompt or their_prompt == our_prompt:
            sys.exit(f"docs/chat.md describes another difference for {members}\n  ours     {ours(members)!r}\n  expected {our_prompt!r}\n  theirs   {theirs(members)!r}")
    # What both refuse, or both take.
    for members, taken in [(PLAIN + ',"tool_choice":"banana"', False), (PLAIN + ',"tool_choice":5', False), (PLAIN + ',"tool_choice":"required"', True),
                           (tool(',"strict":true') + ',"tool_choice":"none"', True), (tool(',"parameters":{"type":"x"}') + ',"tool_choice":"none"', True), (tool(',"strict":5') + ',"tool_choice":"none"', False),
                           (tool("").replace('"f"', '"' + "f" * 128 + '"'), True), (tool("").replace('"f"', '"' + "f" * 129 + '"'), False), (f'"messages":[{U[:-1]},"name":5}}]', False),
                           ('"messages":[{"role":"latest_reminder","content":[{"type":"text","text":"x"}]}]', False), (image.replace("ADDRESS", 'https://example.org/a.png","detail":"x'), False),
                           (image.replace("ADDRESS", 'https://example.org/a.png","detail":"low'), True), (PLAIN + ',"effort":"low","reasoning_effort":"banana"', False), (PLAIN + ',"reasoning_effort":"ultra"', True),
                           (PLAIN + ',"response_format":{"type":"json_schema","json_schema":{"name":5,"schema":{}}}', False)]:
        if (theirs(members) is not None, ours(members)) != (taken, theirs(members)):
            sys.exit(f"ours and the package's differ, or not as described, for {members}\n  ours   {ours(members)!r}\n  theirs {theirs(members)!r}")
    # Service policy that a prompt does not show: the request's own temperature stays (tests/eval has its effect).
    begin, end = '\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="f">\n', "</｜DSML｜ invoke>\n</｜DSML｜ calls>"
    odd = '<｜DSML｜ parameter name="a "b\\" string="true">1</｜DSML｜ parameter>\n'
    answers = [(begin + odd + end, "", '{"a: "1"}', "", '{"a \\"b\\\\": "1"}'), (begin + '<｜DSML｜ parameter name="ab', "", '{"ab', "", ""), ("a <" + begin + end, "a <\n", "{}", "a <", "{}"), ("a <<" + begin + end, "a <<\n", "{}", "a <<", "{}"), ("a <｜" + begin + end, "a <｜\n", "{}", "a <｜", "{}"),
               (begin + '<｜DSML｜ parameter name="x">va', "", '{"x">va', "", '{"x": va')]
    found = run(args.bathys, args.tokenizer, "--answer", [json.dumps({"output": text, "thinking": False}) for text, *_ in answers])[1]
    for (text, their_content, their_arguments, our_content, our_arguments), answer in zip(answers, found, strict=True):
        official = official_answer(text, False)
        pairs = [(x["content"], x["calls"][0]["arguments"]) for x in (official, answer)]
        if pairs != [(their_content, their_arguments), (our_content, our_arguments)]:
            sys.exit(f"docs/chat.md describes another difference for {text!r}\n  ours   {answer}\n  theirs {official}")
    print(f"differences={len(described) + len(answers)}")


# What answers are made of; malformed tags among them. (Where "<" stands before the line breaks before calls, the package keeps one of them.)
PIECES = ["\n", "\n\n", " ", "text", "2 < 3", "</think>", "<think>", "<｜ ", "｜DSML｜", "</｜DSML｜ ", "\n\n<｜DSML｜ calls>\n", '<｜DSML｜ invoke name="f">\n', '<｜DSML｜ invoke name="ns::g">\n\n',
          "</｜DSML｜ parameter>\n", "</｜DSML｜ invoke>\n", "</｜DSML｜ calls>", '<｜DSML｜ parameter name="x" string="true">', '<｜DSML｜ parameter name="y" string="false">', "1.50",
          '{"a": [1, 2]}', '"\\\b\x01é😀', "</thi "]


def answer_text(rng):
    if rng.random() < 0.3:
        return "".join(rng.choice(PIECES) for _ in range(rng.randrange(12)))
    text = rng.choice(["", "r\n\n</think>", "\n\n</think>\n\n", "</think>"]) + rng.choice(TEXTS)
    if rng.random() < 0.7:
        text += "\n\n<｜DSML｜ calls>\n"
        for _ in range(rng.randrange(1, 3)):
            text += '<｜DSML｜ invoke name="' + rng.choice(NAMES) + '">\n'
            for _ in range(rng.randrange(3)):
                text += '<｜DSML｜ parameter name="' + rng.choice(["x", "arguments", "café"]) + '" string="' + rng.choice(["true", "false"]) + '">'
                text += rng.choice([*PIECES, *NUMBERS]) + "</｜DSML｜ parameter>\n"
            text += "</｜DSML｜ invoke>\n"
        text += "</｜DSML｜ calls>"
    if rng.random() < 0.5:
        return text
    text = text[: rng.randrange(len(text) + 1)]
    # A name that is cut off is one of the documented differences.
    tag = text.rfind("<｜DSML｜ parameter")
    return text[:tag] if tag > text.rfind('">') else text


def official_answer(text, thinking):
    body = {"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "user", "content": "x"}], "thinking": {"type": "enabled" if thinking else "disabled"}}
    generator = recipe.ChatCompletionRequest.chunk_generator(recipe.ChatCompletionRequest(json.dumps(body)).convert(OPTIONS), "id", "model")
    options = recipe.ParsingOptions(thinking_initial_stage=recipe.ThinkingInitialStage.ReasoningStart if thinking else None, special_tokens=MARKERS)
    processor = recipe.StreamProcessor(generator, options)
    response = recipe.ChatCompletionResponse("id", "model", 0, 0, 0)
    for chunk in [recipe.InferenceChunk.ready(), recipe.InferenceChunk.text(text, 1), recipe.InferenceChunk.finish(recipe.InferenceFinishReason.Stop)]:
        for part in processor.push(chunk):
            response.accumulate(part)
    for part in processor.finish():
        response.accumulate(part)
    message = json.loads(response.to_json())["choices"][0]["message"]
    calls = [{"name": call["function"]["name"], "arguments": call["function"]["arguments"]} for call in message.get("tool_calls") or []]
    return {"reasoning": message.get("reasoning_content") or "", "content": message.get("content") or "", "calls": calls}


def compare_answers(args, rng):
    questions = [{"output": answer_text(rng), "thinking": rng.random() < 0.5} for _ in range(args.answers)]
    code, answers, errors = run(args.bathys, args.tokenizer, "--answer", [json.dumps(question) for question in questions])
    if code != 0:
        sys.exit(f"bathys ended with {code}: {errors}")
    for question, answer in zip(questions, answers, strict=True):
        expected = official_answer(question["output"], question["thinking"])
        if answer != expected:
            sys.exit(f"answers differ for {question}\n  ours   {answer}\n  theirs {expected}")
    print(f"answers={len(questions)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bathys")
    parser.add_argument("tokenizer")
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--conversations", type=int, default=2400)
    parser.add_argument("--refusals", type=int, default=30, help="of the conversations that the package refuses")
    parser.add_argument("--answers", type=int, default=2000)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    compare_chats(args, rng)
    compare_answers(args, rng)
    compare_differences(args)


if __name__ == "__main__":
    main()
