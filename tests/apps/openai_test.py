#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""OpenAI batch files through the program: the files it writes, beside lines of its own; the same after a stop and on other ranks."""

import json
import unittest

from harness import OK, SOME_FAILED, Scratch, read_lines

CHAT = [{"role": "user", "content": "hello"}]
BODIES = {
    "text": ("/v1/completions", {"model": "nano", "prompt": "In the beginning God", "max_tokens": 8, "temperature": 0, "logprobs": 2}),
    "many": ("/v1/completions", {"prompt": ["And God said", "And God said", ""], "n": 2, "max_tokens": 6}),
    "bad": ("/v1/completions", {"prompt": [[0, 5, 6], [7]], "presence_penalty": 0.5}),
    "own": ("bathys:generate_until", {"context": "In the beginning God", "max_gen_toks": 8}),
    "think": ("/v1/chat/completions", {"messages": CHAT, "max_tokens": 30, "n": 2, "logprobs": True, "top_logprobs": 1}),
    "plain": ("/v1/chat/completions", {"messages": CHAT, "thinking": {"type": "disabled"}, "max_completion_tokens": 12, "temperature": 0}),
    "long": ("/v1/chat/completions", {"messages": CHAT, "max_tokens": 4095}),
}


class OpenAi(Scratch):
    def setUp(self):
        super().setUp()
        lines = [json.dumps({"custom_id": key, "method": "POST", "url": url, "body": body}) for key, (url, body) in BODIES.items()]
        self.requests = self.write("requests.jsonl", "\n".join(lines) + "\n")

    def outputs(self, name="run"):
        return [{line["custom_id"]: line for line in read_lines(self.folder / name / file)}
                for file in ("openai_output.jsonl", "openai_errors.jsonl")]

    def test_answers_come_in_both_forms(self):
        self.assertEqual(self.evaluate(self.requests).returncode, SOME_FAILED)
        good, bad = self.outputs()
        self.assertEqual(list(good), ["text", "many", "think", "plain"])
        self.assertEqual({key: line["error"]["code"] for key, line in bad.items()},
                         {"bad": "unsupported_parameter", "long": "context_length_exceeded"})
        for line in [*good.values(), *bad.values()]:
            self.assertEqual(set(line), {"id", "custom_id", "response", "error"})
        results = self.results()
        text = good["text"]["response"]["body"]
        self.assertEqual((text["object"], text["model"]), ("text_completion", "nano"))
        self.assertEqual(text["choices"][0]["text"], results["own", 0]["result"]["text"])
        logprobs = text["choices"][0]["logprobs"]
        self.assertEqual("".join(logprobs["tokens"]), text["choices"][0]["text"])
        self.assertTrue(all(len(top) == 2 for top in logprobs["top_logprobs"]))
        many = good["many"]["response"]["body"]["choices"]
        self.assertEqual([choice["index"] for choice in many], list(range(6)))
        self.assertEqual([choice["text"] for choice in many], [results["many", i]["result"]["text"] for i in range(6)])
        self.assertEqual(len({choice["text"] for choice in many}), 6)
        plain = good["plain"]["response"]["body"]["choices"][0]
        self.assertEqual(plain["message"]["content"], results["plain", 0]["result"]["text"])
        self.assertNotIn("reasoning_content", plain["message"])
        think = good["think"]["response"]["body"]
        self.assertEqual(len(think["choices"]), 2)
        self.assertTrue(think["choices"][0]["message"]["reasoning_content"])
        self.assertEqual(think["usage"]["completion_tokens"], 60)
        self.assertEqual(think["usage"]["prompt_tokens"], results["think", 0]["usage"]["prompt_tokens"])
        self.assertEqual(len(think["choices"][0]["logprobs"]["content"]), 30)

    def test_a_stop_and_other_ranks_change_no_byte(self):
        self.evaluate(self.requests, name="whole")
        out = self.folder / "run"
        stopped = self.evaluate(self.requests, "--max-seconds", "0.001", "--grace-seconds", "0")
        self.assertEqual(stopped.returncode, 75, stopped.stderr)
        self.assertFalse((out / "openai_output.jsonl").exists())
        self.assertEqual(self.evaluate(self.requests, fresh=False, ranks=2).returncode, SOME_FAILED)
        for name in ("results.jsonl", "scores.jsonl", "openai_errors.jsonl"):
            self.assertEqual((out / name).read_bytes(), (self.folder / "whole" / name).read_bytes(), name)
        created = lambda name: json.loads((self.folder / name / "openai_output.jsonl").read_text().split("\n")[0])["response"]["body"]["created"]
        text = (out / "openai_output.jsonl").read_text().replace(f'"created":{created("run")}', f'"created":{created("whole")}')
        self.assertEqual(text, (self.folder / "whole" / "openai_output.jsonl").read_text())

    def test_files_of_own_lines_have_no_openai_output(self):
        requests = self.write("own.jsonl", '{"custom_id":"a","url":"bathys:generate_until","body":{"context":"a","max_gen_toks":2}}\n')
        self.assertEqual(self.evaluate(requests).returncode, OK)
        self.assertFalse((self.folder / "run" / "openai_output.jsonl").exists())


if __name__ == "__main__":
    unittest.main()
