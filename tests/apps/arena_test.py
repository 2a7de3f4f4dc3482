#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Synthetic models in the program: they run, alike on any number of ranks, and a rank's weights take the memory of its shards."""

import json
import re
import unittest

from harness import BAD_INPUT, OK, ROOT, USAGE, Scratch, run

MODELS = ROOT / "inputs" / "models"
REQUEST = {"custom_id": "ids", "url": "bathys:loglikelihood",
           "body": {"context_ids": [0, 300, 400], "continuation_ids": [[500, 600], [700]], "token_logprobs": True}}
LARGE_BYTES = 500_000_000
WINDOW_BYTES = 160 << 20  # pieces of 16 MiB that are read, sent, received and packed, and what MPI takes
MOST = 1.1  # packed weights over the bytes of the shards they were read from


def event(stderr, name):
    """The numbers of the last line `event=name`."""
    lines = [line for line in stderr.splitlines() if line.startswith(f"event={name} ")]
    return {key: float(value) for key, value in re.findall(r"(\w+)=([\d.]+)", lines[-1])}


class Synthetic(Scratch):
    def synthesize(self, config):
        model = self.folder / "model"
        done = run("synth", config, model)
        self.assertEqual(done.returncode, OK, done.stderr)
        return model

    def evaluate_ids(self, model, ranks):
        """The run's results and its load event."""
        requests = self.write("requests.jsonl", json.dumps(REQUEST) + "\n")
        out = self.folder / f"run{ranks}"
        done = run("eval", "--model", model, "--requests", requests, "--out", out, ranks=ranks, timeout=600)
        self.assertEqual(done.returncode, OK, done.stderr)
        # What putting the result files together took is part of the peak.
        self.assertLess(done.stderr.index("state=finalizing"), done.stderr.index("event=memory_peak"))
        return (out / "results.jsonl").read_bytes(), event(done.stderr, "load")

    def test_a_synthetic_model_scores_alike_on_one_rank_and_two(self):
        model = self.synthesize(MODELS / "nano" / "config.json")
        one, _ = self.evaluate_ids(model, 1)
        two, _ = self.evaluate_ids(model, 2)
        self.assertEqual(one, two)
        result = json.loads(one)["result"]
        for logprob in result["token_logprobs"][0] + result["token_logprobs"][1]:
            self.assertTrue(-40 < logprob < 0, logprob)  # finite, and no distribution of one token

    def test_a_model_made_in_memory_is_that_of_its_shards(self):
        config = MODELS / "nano" / "config.json"
        requests = self.write("requests.jsonl", json.dumps(REQUEST) + "\n")
        results = set()
        for ranks in (1, 2, 4):
            out = self.folder / f"memory{ranks}"
            done = run("eval", "--synthetic", config, "--requests", requests, "--out", out, ranks=ranks, timeout=600)
            self.assertEqual(done.returncode, OK, done.stderr)
            self.assertEqual(event(done.stderr, "load")["read_bytes"], 0)
            results.add((out / "results.jsonl").read_bytes())
        results.add(self.evaluate_ids(self.synthesize(config), 1)[0])
        self.assertEqual(len(results), 1)
        seeded = self.folder / "seeded"
        done = run("eval", "--synthetic", config, "--synthetic-seed", "1", "--requests", requests, "--out", seeded, timeout=600)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertNotIn((seeded / "results.jsonl").read_bytes(), results)
        # Another seed is another model: its answers do not go on where the first one's stopped.
        self.assert_refused(run("eval", "--synthetic", config, "--requests", requests, "--out", seeded), USAGE, "checkpoint")
        texts = {run("generate", *model, "--prompt", "th", "--max-tokens", "5", ranks=ranks).stdout
                 for ranks in (1, 2) for model in (("--synthetic", config), ("--model", self.folder / "model"))}
        self.assertEqual(len(texts), 1)

    def test_a_model_is_named_once(self):
        requests = self.write("requests.jsonl", json.dumps(REQUEST) + "\n")
        rest = ("--requests", requests, "--out", self.folder / "run")
        self.assert_refused(run("eval", *rest), USAGE, "--model", "--synthetic")
        self.assert_refused(run("eval", "--model", "a", "--synthetic", "b", *rest), USAGE, "--synthetic")
        self.assert_refused(run("eval", "--synthetic", "/nowhere", *rest), BAD_INPUT, "/nowhere")

    def test_weights_take_the_memory_of_their_shards(self):
        config = json.loads((MODELS / "mid.json").read_text(encoding="utf-8"))
        config["n_routed_experts"] = 40
        model = self.synthesize(self.write("config.json", json.dumps(config)))
        inspected = json.loads(run("inspect", "--json", model).stdout)
        self.assertGreaterEqual(inspected["bytes"], LARGE_BYTES)
        shard_bytes = {share["ranks"]: share["bytes"] for share in inspected["ranks"]}
        results = []
        for ranks in (1, 2, 4):
            result, load = self.evaluate_ids(model, ranks)
            results.append(result)
            self.assertEqual(load["read_amplification"], 1)
            self.assertLessEqual(load["over_weights_bytes"], WINDOW_BYTES)
            ratio = load["weight_bytes"] / shard_bytes[ranks]
            growth = load["rss_after_bytes"] - load["rss_before_bytes"]
            peak = load["rss_peak_bytes"] - load["rss_before_bytes"]
            print(f"ranks={ranks} shard_bytes={shard_bytes[ranks]} weight_bytes={load['weight_bytes']:.0f} ratio={ratio:.3f} "
                  f"resident_growth_bytes={growth:.0f} peak_growth_bytes={peak:.0f}")
            self.assertLessEqual(ratio, MOST)
        self.assertEqual(len(set(results)), 1)


if __name__ == "__main__":
    unittest.main()
