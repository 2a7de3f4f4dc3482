#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Synthetic models in the program: they run, alike on any number of ranks, and a rank's weights take the memory of its shards."""

import json
import re
import unittest

from harness import OK, ROOT, Scratch, run

MODELS = ROOT / "inputs" / "models"
REQUEST = {"custom_id": "ids", "url": "bathys:loglikelihood",
           "body": {"context_ids": [0, 300, 400], "continuation_ids": [[500, 600], [700]], "token_logprobs": True}}
LARGE_BYTES = 500_000_000
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
        return (out / "results.jsonl").read_bytes(), event(done.stderr, "load")

    def test_a_synthetic_model_scores_alike_on_one_rank_and_two(self):
        model = self.synthesize(MODELS / "nano" / "config.json")
        one, _ = self.evaluate_ids(model, 1)
        two, _ = self.evaluate_ids(model, 2)
        self.assertEqual(one, two)
        result = json.loads(one)["result"]
        for logprob in result["token_logprobs"][0] + result["token_logprobs"][1]:
            self.assertTrue(-40 < logprob < 0, logprob)  # finite, and no distribution of one token

    def test_weights_take_the_memory_of_their_shards(self):
        config = json.loads((MODELS / "mid.json").read_text(encoding="utf-8"))
        config["n_routed_experts"] = 40
        model = self.synthesize(self.write("config.json", json.dumps(config)))
        inspected = json.loads(run("inspect", "--json", model).stdout)
        self.assertGreaterEqual(inspected["bytes"], LARGE_BYTES)
        shard_bytes = {share["ranks"]: share["bytes"] for share in inspected["ranks"]}
        results = []
        for ranks in (1, 2):
            result, load = self.evaluate_ids(model, ranks)
            results.append(result)
            ratio = load["weight_bytes"] / shard_bytes[ranks]
            growth = load["rss_after_bytes"] - load["rss_before_bytes"]
            peak = load["rss_peak_bytes"] - load["rss_before_bytes"]
            print(f"ranks={ranks} shard_bytes={shard_bytes[ranks]} weight_bytes={load['weight_bytes']:.0f} ratio={ratio:.3f} "
                  f"resident_growth_bytes={growth:.0f} peak_growth_bytes={peak:.0f}")
            self.assertLessEqual(ratio, MOST)
        self.assertEqual(results[0], results[1])


if __name__ == "__main__":
    unittest.main()
