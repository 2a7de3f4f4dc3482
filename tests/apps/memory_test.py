#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run announces before it reads any weight is what it takes: many short requests beside one long one, in a bounded arena."""

import json
import os
import re
import shutil
import unittest

from harness import OK, ROOT, SHARDS, SOME_FAILED, STOPPED, USAGE, Scratch, resealed, run

FULL = os.environ.get("BATHYS_FULL") == "1"


def event(text, name):
    """The key=value pairs of the last line of this name."""
    lines = [line for line in text.splitlines() if line.startswith(f"event={name} ")]
    assert lines, text
    return dict(re.findall(r"(\w+)=(\S+)", lines[-1]))


class Memory(Scratch):
    def mixed(self, n_short, n_long):
        lines = []
        for n in range(n_short):
            body = {"context_ids": [0, 300 + n % 500, 301], "continuation_ids": [[302, 303]]}
            lines.append({"custom_id": f"short-{n}", "url": "bathys:loglikelihood", "body": body})
        ids = [3 + (17 * n) % 900 for n in range(n_long)]
        lines.insert(n_short // 2, {"custom_id": "long", "url": "bathys:loglikelihood_rolling", "body": {"ids": ids}})
        return self.write("mixed.jsonl", "\n".join(json.dumps(line) for line in lines) + "\n")

    def evaluate_synthetic(self, requests, memory, ranks, *options, **changes):
        """A model of nano's shape for long contexts, made in memory; `changes` of its config."""
        config = json.loads((ROOT / "inputs" / "models" / "nano" / "config.json").read_text(encoding="utf-8"))
        config["text_config"].update({"max_position_embeddings": 131072, "sliding_window": 32, **changes})
        path = self.write("config.json", json.dumps(config))
        room = [] if memory is None else ["--memory", str(memory)]
        return run("eval", "--synthetic", path, "--requests", requests, "--out", self.folder / "run", *room,
                   "--row-budget", "256", *options, ranks=ranks, timeout=3000)

    def test_a_rank_stays_within_what_it_announced(self):
        # The long document's caches alone fill most of the arena: 80 bytes a token and the state of one sequence.
        n_short, n_long, memory = (100_000, 100_000, 0.012) if FULL else (200, 5_000, 0.002)
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                done = self.evaluate_synthetic(self.mixed(n_short, n_long), memory, ranks)
                self.assertEqual(done.returncode, OK, done.stderr)
                self.assertEqual(event(done.stderr, "memory")["workspace_bytes"], event(done.stderr, "load")["workspace_bytes"])
                report = event(done.stderr, "memory_peak")
                peak, announced = int(report["host_peak_bytes"]), int(report["host_announced_bytes"])
                self.assertLessEqual(peak, 1.10 * announced)
                self.assertGreaterEqual(peak, 0.7 * announced)

    def test_caches_that_are_most_of_a_rank_fill_what_was_announced(self):
        # A window of 2,048 positions makes the state of a sequence 1.1 MB, of which a fork writes all; more are asked for than there is room.
        # Documents run beside them and end, so that what they held is wanted by others.
        lines = []
        for n in range(8):
            body = {"context_ids": [0, *range(300 + n, 320 + n)], "max_gen_toks": 4, "temperature": 1, "repeats": 40}
            lines.append({"custom_id": f"drawn-{n}", "url": "bathys:generate_until", "body": body})
            ids = [3 + (17 * i + n) % 900 for i in range(700)]
            lines.append({"custom_id": f"document-{n}", "url": "bathys:loglikelihood_rolling", "body": {"ids": ids}})
        requests = self.write("requests.jsonl", "\n".join(json.dumps(line) for line in lines) + "\n")
        done = self.evaluate_synthetic(requests, 0.125, ranks=1, sliding_window=2048)
        self.assertEqual(done.returncode, OK, done.stderr)
        memory, report = event(done.stderr, "memory"), event(done.stderr, "memory_peak")
        peak, announced = int(report["host_peak_bytes"]), int(report["host_announced_bytes"])
        self.assertEqual(int(memory["announced_bytes"]), announced)  # all of it lies on the host
        self.assertGreater(int(memory["cache_bytes"]), announced / 2)
        self.assertLessEqual(peak, 1.10 * announced)
        self.assertGreaterEqual(peak, 0.7 * announced)

    def test_what_waits_for_its_turn_is_little_beside_the_rest(self):
        ids = lambda seed: [3 + (seed * 31 + 17 * i) % 900 for i in range(3900)]
        questions = [{"context_ids": ids(n), "continuation_ids": [[5, 6], [7, 8], [9], [10, 11]]} for n in range(600)]
        draws = [{"context_ids": ids(0), "max_gen_toks": 8, "temperature": 1, "repeats": 10_000}]
        for kind, bodies in (("loglikelihood", questions), ("generate_until", draws)):
            with self.subTest(kind):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                lines = [json.dumps({"custom_id": str(n), "url": f"bathys:{kind}", "body": body}) for n, body in enumerate(bodies)]
                requests = self.write("many.jsonl", "\n".join(lines) + "\n")
                done = self.evaluate_synthetic(requests, 0.01, 1, "--max-seconds", "6", "--grace-seconds", "0")
                self.assertEqual(done.returncode, STOPPED, done.stderr)
                report = event(done.stderr, "memory_peak")
                self.assertLessEqual(int(report["host_peak_bytes"]), 1.10 * int(report["host_announced_bytes"]))

    def test_scores_over_a_whole_vocabulary_take_a_chunk_of_logits(self):
        # All logits of the scored rows at once would be a gigabyte in the quick tier, ten in the full one.
        vocab, n = 129_280, 20_000 if FULL else 2_000
        body = {"ids": [3 + (17 * i) % 900 for i in range(n)], "token_logprobs": True}
        requests = self.write("scored.jsonl", json.dumps({"custom_id": "scored", "url": "bathys:loglikelihood_rolling", "body": body}) + "\n")
        done = self.evaluate_synthetic(requests, 0.01, ranks=1, vocab_size=vocab)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(len(self.results()["scored", 0]["result"]["token_logprobs"]), n)
        memory, peak = event(done.stderr, "memory"), int(event(done.stderr, "memory_peak")["host_peak_bytes"])
        chunk = 64 * vocab * 4
        beside = int(memory["baseline_bytes"]) + int(memory["weight_bytes"]) + int(memory["cache_bytes"])
        self.assertLessEqual(peak, beside + 6 * chunk)
        self.assertLessEqual(peak, 1.10 * int(memory["announced_bytes"]))

    def test_a_request_larger_than_the_arena_fails_alone(self):
        done = self.evaluate_synthetic(self.mixed(20, 5_000), 0.0003, ranks=2)
        self.assertEqual(done.returncode, SOME_FAILED, done.stderr)
        results = self.results()
        self.assertEqual(results["long", 0]["error"]["code"], "does_not_fit")
        self.assertTrue(all(record["ok"] for key, record in results.items() if key[0] != "long"))

    def test_what_did_not_fit_is_tried_again_where_it_fits(self):
        requests = self.mixed(20, 5_000)
        self.assertEqual(self.evaluate_synthetic(requests, 0.0003, ranks=2).returncode, SOME_FAILED)
        results = (self.folder / "run" / "results.jsonl").read_bytes()
        for memory in (0.0003, 0.0002):  # it would not fit again, so that nothing is loaded
            again = self.evaluate_synthetic(requests, memory, ranks=1)
            self.assertEqual(again.returncode, SOME_FAILED, again.stderr)
            self.assertEqual(event(again.stderr, "misfits")["fit_now"], "0")
            self.assertNotIn("event=load ", again.stderr)
            self.assertEqual((self.folder / "run" / "results.jsonl").read_bytes(), results)
        # A start that had no bound of its own, and found less free than this one.
        for journal in (self.folder / "run" / "journal").iterdir():
            text = journal.read_text()
            self.assertIn('"memory_gib":0.0003', text)
            journal.write_text(resealed(text.replace('"memory_gib":0.0003', '"memory_gib":0.0'), self.folder / "run"))
        whole = self.evaluate_synthetic(requests, None, ranks=2)
        self.assertEqual(whole.returncode, OK, whole.stderr)
        self.assertEqual(event(whole.stderr, "run")["on_record"], "20")
        self.assertTrue(all(record["ok"] for record in self.results().values()))

    def test_buffers_that_no_node_has_are_refused_with_the_option_to_lower(self):
        done = run("eval", "--model", SHARDS, "--requests", self.mixed(2, 10), "--out", self.folder / "big", "--row-budget", str(1 << 24))
        self.assert_refused(done, USAGE, "--row-budget 16777216", "lower --row-budget")


if __name__ == "__main__":
    unittest.main()
