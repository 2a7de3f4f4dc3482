#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A score never depends on how it was computed: results.jsonl is the same bytes for ranks, row budgets, cone, prefix sharing, threads."""

import json
import unittest

from harness import CASES, OK, REQUESTS, Scratch

# Ranks and options, chosen so that each value of one meets several of the others.
RUNS = [(1, ()), (1, ("--row-budget", "7", "--threads", "2")), (2, ("--cone", "off", "--row-budget", "64")),
        (4, ("--prefix-sharing", "off", "--row-budget", "33")), (8, ("--cone", "off", "--prefix-sharing", "off", "--row-budget", "4096"))]


class Invariance(Scratch):
    def requests(self):
        lines = (CASES / "work_200.jsonl").read_text(encoding="utf-8").splitlines()[::6]
        lines += (REQUESTS / "choices.jsonl").read_text(encoding="utf-8").splitlines()[:12]
        lines += (CASES / "c20_stops.jsonl").read_text(encoding="utf-8").splitlines()
        # Windows that overlap, a document longer than the attention window, several answers at temperature 1.
        text = " ".join(["And God said unto the children of Israel"] * 20)
        for n, body in enumerate([{"text": text, "max_length": 16}, {"text": text, "token_logprobs": True}]):
            lines.append(json.dumps({"custom_id": f"rolling-{n}", "url": "bathys:loglikelihood_rolling", "body": body}))
        body = {"context": text, "temperature": 1, "top_p": 0.9, "repeats": 4, "max_gen_toks": 12, "top_logprobs": 3}
        lines.append(json.dumps({"custom_id": "draws", "url": "bathys:generate_until", "body": body}))
        return lines

    def test_every_way_of_running_gives_the_same_bytes(self):
        requests = self.write("requests.jsonl", "\n".join(self.requests()) + "\n")
        for n, (ranks, options) in enumerate(RUNS):
            with self.subTest(ranks=ranks, options=options):
                done = self.evaluate(requests, *options, ranks=ranks, name=f"run-{n}")
                self.assertEqual(done.returncode, OK, done.stderr)
                self.assertEqual(self.result_bytes(f"run-{n}"), self.result_bytes("run-0"))

    def test_the_order_of_the_lines_does_not_matter(self):
        lines = self.requests()
        self.assertEqual(self.evaluate(self.write("forward.jsonl", "\n".join(lines)), name="forward").returncode, OK)
        self.assertEqual(self.evaluate(self.write("backward.jsonl", "\n".join(lines[::-1])), name="backward").returncode, OK)
        split = lambda name: sorted(self.result_bytes(name).split(b"\n"))
        self.assertEqual(split("forward"), split("backward"))


if __name__ == "__main__":
    unittest.main()
