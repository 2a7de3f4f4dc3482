#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The quick start's requests against the reference program's numbers (inputs/requests/nano/expected.json), within its tolerances."""

import json
import unittest

from harness import OK, REQUESTS, Scratch

EXPECTED = json.loads((REQUESTS / "nano" / "expected.json").read_text(encoding="utf-8"))
TOLERANCE = EXPECTED["tolerance"]["float32_contract"]
MAX_ACCURACY_DIFFERENCE = 4 / 240
CLEAR_GAP = 0.1  # between the best two logits: below it two correct programs may choose differently


class Nano(Scratch):
    def evaluate_file(self, name, ranks=2):
        done = self.evaluate(REQUESTS / name, ranks=ranks, timeout=900)
        self.assertEqual(done.returncode, OK, done.stderr)
        return {key[0]: record["result"] for key, record in self.results().items()}

    def check_documents(self, name):
        expected = EXPECTED[name]
        results = self.evaluate_file(name + ".jsonl")
        for document in expected["documents"]:
            result = results[document["id"]]
            self.assertEqual((result["n_tokens"], result["n_bytes"], result["n_windows"]), (document["tokens"], document["bytes"], 1))
            self.assertLessEqual(abs(result["logprob"] - document["sum_logprob_float32"]), TOLERANCE["per_token"] * document["tokens"])
        return sum(result["logprob"] for result in results.values())

    def test_perplexity_of_the_held_out_documents(self):
        total = self.check_documents("heldout")
        expected = EXPECTED["heldout"]["float32"]
        self.assertLessEqual(abs(total - expected["sum_logprob"]), TOLERANCE["total"] * abs(expected["sum_logprob"]))
        scores = self.summary()["tasks"]["heldout"]
        self.assertAlmostEqual(scores["token_perplexity"]["mean"], expected["token_perplexity"], delta=0.02)
        self.assertAlmostEqual(scores["bits_per_byte"]["mean"], expected["bits_per_byte"], delta=0.001)

    def test_the_long_document(self):
        self.check_documents("long")

    def test_accuracy_of_the_choices(self):
        results = self.evaluate_file("choices.jsonl")
        expected = EXPECTED["multiple_choice"]
        for item in expected["items"]:
            self.assertEqual(results[item["id"]]["n_tokens"], item["tokens"])
        scores = self.summary()["tasks"]["choices"]
        self.assertLessEqual(abs(scores["acc"]["mean"] - expected["accuracy_sum"]), MAX_ACCURACY_DIFFERENCE)
        self.assertLessEqual(abs(scores["acc_bytes"]["mean"] - expected["accuracy_per_byte"]), MAX_ACCURACY_DIFFERENCE)

    def test_greedy_texts_follow_the_reference_while_its_choice_is_clear(self):
        results = self.evaluate_file("prompts.jsonl")
        for sample in EXPECTED["generation"]:
            with self.subTest(sample["id"]):
                ids = results[sample["id"]]["token_ids"]
                clear = next((n for n, gap in enumerate(sample["gaps"]) if gap < CLEAR_GAP), len(sample["gaps"]))
                self.assertEqual(ids[:clear], sample["tokens"][:clear])
                usage = self.results()[sample["id"], 0]["usage"]
                self.assertEqual(usage["prompt_tokens"], len(sample["prompt_tokens"]))


if __name__ == "__main__":
    unittest.main()
