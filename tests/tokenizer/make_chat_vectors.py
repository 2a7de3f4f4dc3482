#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes data/chat_vectors.jsonl: random conversations, their prompts and ids by DeepSeek's own encoding.

  make_chat_vectors.py NANO_TOKENIZER.json > data/chat_vectors.jsonl     (pip install deepseek-recipe==0.2.0)

Each line: body (a chat request), prompt (the text), ids (with the nano model's tokenizer).
"""
import json
import random
import sys

import deepseek_recipe as recipe

MARKERS = recipe.SpecialTokens(image="<｜deepseek_image｜>")
TEXTS = ["", "hello", " And God said, Let there be light ", "a\n\nb\n", "x <｜User｜> y", "why </think> and <think>?", "<｜end▁of▁sentence｜>", "naïve 深度 😀", "\n", "1234567"]


def content(rng):
    text = rng.choice(TEXTS)
    return text if rng.random() < 0.8 else [{"type": "text", "text": rng.choice(TEXTS)} for _ in range(rng.randrange(4))]


def body(rng):
    messages = []
    count = rng.randrange(1, 8)
    for n in range(count):
        role = rng.choice(["system", "user", "user", "user", "assistant", "assistant", "latest_reminder"])
        message = {"role": role, "content": rng.choice(TEXTS) if role == "latest_reminder" else content(rng)}
        if role == "assistant" and rng.random() < 0.6:
            message["reasoning_content"] = rng.choice(TEXTS + [None])
        if role == "assistant" and n == count - 1 and rng.random() < 0.7:
            message["prefix"] = True
        messages.append(message)
    out = {"messages": messages}
    if rng.random() < 0.5:
        out["thinking"] = {"type": rng.choice(["enabled", "disabled", "disabled", "adaptive"])}
    if rng.random() < 0.5:
        out["reasoning_effort"] = rng.choice(["none", "minimal", "low", "medium", "high", "xhigh", "max"])
    return out


def main():
    rng = random.Random(41)
    tokenizer = recipe.Tokenizer.from_file(sys.argv[1])
    encoding = recipe.DeepseekV41Encoding().with_special_tokens(MARKERS)
    options = recipe.ConversionOptions().with_special_tokens(MARKERS)
    for _ in range(400):
        request = body(rng)
        conversation = recipe.ChatCompletionRequest(json.dumps({"model": "DeepSeek-V4.1-Flash", **request})).convert(options).conversation
        prompt = encoding.render_conversation(conversation).prompt
        ids = encoding.with_tokenizer(tokenizer).encode(conversation)
        print(json.dumps({"body": request, "prompt": prompt, "ids": ids}, ensure_ascii=False, separators=(",", ":")))


if __name__ == "__main__":
    main()
