#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A score never depends on how it was computed: results.jsonl is the same bytes for ranks, layouts, row budgets, memory, cone, prefix sharing, threads, look-ahead."""

import itertools
import json
import os
import unittest

from harness import CASES, OK, REQUESTS, Scratch

FULL = os.environ.get("BATHYS_FULL") == "1"
TIGHT = "0.0002"  # GiB of caches: some five of these sequences
LAYOUTS = {1: ["tensor=1"], 2: ["tensor=2", "groups=2", "replicas=2"],
           4: ["tensor=4", "groups=4", "replicas=4", "groups=2,tensor=2", "replicas=2,tensor=2", "replicas=2,groups=2"],
           8: ["tensor=8", "replicas=2,groups=2,tensor=2"]}


def runs():
    """Ranks and options; in the quick tier chosen so that each value of one meets several of the others."""
    if not FULL:
        return [(1, ()), (1, ("--row-budget", "7", "--threads", "2", "--prepare-threads", "0")), (2, ("--cone", "off", "--row-budget", "64", "--memory", TIGHT)),
                (4, ("--prefix-sharing", "off", "--row-budget", "33")), (2, ("--layout", "replicas=2", "--row-budget", "50", "--prepare-threads", "3")),
                (2, ("--layout", "groups=2", "--row-budget", "29", "--memory", TIGHT)), (4, ("--layout", "groups=4", "--prefix-sharing", "off")),
                (4, ("--layout", "replicas=2,groups=2", "--cone", "off")), (4, ("--layout", "replicas=1,groups=2,tensor=2")),
                (8, ("--cone", "off", "--prefix-sharing", "off", "--row-budget", "4096", "--layout", "replicas=2,groups=2,tensor=2"))]
    # Every second run with caches for a few sequences only: beginnings are given up, sequences wait.
    product = itertools.product(((ranks, layout) for ranks, layouts in LAYOUTS.items() for layout in layouts), ("on", "off"), ("on", "off"),
                                ("33", "512"))
    layouts = [(ranks, ("--layout", layout, "--cone", cone, "--prefix-sharing", sharing, "--row-budget", budget, *(("--memory", TIGHT) if n % 2 else ()), "--prepare-threads", str(n % 3)))
               for n, ((ranks, layout), cone, sharing, budget) in enumerate(product)]
    budgets = [(2 // int(threads), ("--row-budget", budget, "--threads", threads, "--cone", cone, "--prefix-sharing", sharing))
               for cone, sharing, budget, threads in (*itertools.product(("on",), ("on",), ("1", "7", "64", "4096"), ("1", "2")),
                                                      *itertools.product(("off",), ("off",), ("7", "64"), ("2",)))]
    return [(1, ()), *layouts, *budgets]


class Invariance(Scratch):
    def requests(self):
        lines = (CASES / "work_200.jsonl").read_text(encoding="utf-8").splitlines()[::1 if FULL else 6]
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
        for n, (ranks, options) in enumerate(runs()):
            with self.subTest(ranks=ranks, options=options):
                done = self.evaluate(requests, *options, ranks=ranks, name=f"run-{n}", timeout=1200)
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
