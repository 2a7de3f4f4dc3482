#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes data/tool_chat_vectors.jsonl: the conversations of compare_chat_with_recipe.py with what DeepSeek's package makes of them.

  make_tool_chat_vectors.py NANO_TOKENIZER.json > data/tool_chat_vectors.jsonl     (pip install deepseek-recipe==0.2.0)

Each line: body (a chat request, as text), prompt_sha256, ids_sha256 (of the ids with the nano model's tokenizer as JSON without spaces).
"""
import hashlib
import json
import random
import sys

import compare_chat_with_recipe as chats
import deepseek_recipe as recipe


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def main():
    rng = random.Random(7)
    encoder = chats.ENCODING.with_tokenizer(recipe.Tokenizer.from_file(sys.argv[1]))
    count = 0
    while count < 300:
        body = chats.body_text(rng)
        ids = chats.official_ids(encoder, body)
        if ids is None:
            continue
        conversation = recipe.ChatCompletionRequest(body).convert(chats.OPTIONS).conversation
        prompt = chats.ENCODING.render_conversation(conversation).prompt
        print(json.dumps({"body": body, "prompt_sha256": sha256(prompt), "ids_sha256": sha256(json.dumps(ids, separators=(",", ":")))}, separators=(",", ":")))
        count += 1


if __name__ == "__main__":
    main()
