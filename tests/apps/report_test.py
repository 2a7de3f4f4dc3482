#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run says of itself: summary, items, the dry run; options that cannot be; results pinned to the versions they belong to."""

import hashlib
import json
import os
import re
import unittest

from harness import BAD_INPUT, BAD_REQUESTS, CASES, OK, REQUESTS, ROOT, SHARDS, SOME_FAILED, USAGE, Scratch, read_lines, run

PINNED = ROOT / "tests" / "apps" / "pinned.json"


class Report(Scratch):
    def mixed(self):
        """Requests of every kind, one of which fails."""
        lines = []
        for name, n in (("choices", 6), ("prompts", 3)):
            lines += (REQUESTS / f"{name}.jsonl").read_text(encoding="utf-8").split("\n")[:n]
        lines += (CASES / "c17_one_item.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n")
        own = {"context": "And God said", "max_gen_toks": 5, "repeats": 3, "temperature": 0.5, "top_p": 0.9}
        chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 7, "reasoning_effort": "max"}
        for key, url, body in (("own", "bathys:generate_until", own), ("chat", "/v1/chat/completions", chat),
                               ("bad", "/v1/completions", {"prompt": "a", "echo": True})):
            lines.append(json.dumps({"custom_id": key, "url": url, "body": body}))
        return self.write("requests.jsonl", "\n".join(lines) + "\n")

    def test_the_summary_says_what_was_asked_and_how_long_it_took(self):
        done = self.evaluate(self.mixed(), ranks=2)
        self.assertEqual(done.returncode, SOME_FAILED, done.stderr)
        summary, results = self.summary(), list(self.results().values())
        asked = summary["requests"]
        self.assertEqual(asked["kinds"], {"chat_completion": 1, "completion": 1, "generate_until": 4, "loglikelihood": 6,
                                          "loglikelihood_rolling": 1})
        self.assertEqual(asked["temperatures"]["0.5"], 1)
        self.assertEqual(asked["top_p"]["0.9"], 1)
        self.assertEqual(asked["chats"]["thinking default, effort max"], 1)
        for name, kinds in (("scored", ("loglikelihood", "loglikelihood_rolling")), ("generated", ("generate_until", "chat_completion"))):
            self.assertEqual(summary["tokens"][name], sum(r["usage"]["completion_tokens"] for r in results if r["kind"] in kinds))
        good = sorted(r["usage"]["prompt_tokens"] for r in results if r["ok"])
        lengths = summary["lengths"]["prompt_tokens"]
        self.assertEqual((lengths["n"], lengths["min"], lengths["max"]), (len(good), good[0], good[-1]))
        self.assertEqual(lengths["p50"], good[(len(good) + 1) // 2 - 1])
        items = read_lines(self.folder / "run" / "items.jsonl")
        self.assertEqual([(i["custom_id"], i["repeat"]) for i in items], [(r["custom_id"], r["repeat"]) for r in results])
        for item in items:
            self.assertLessEqual({"start", "rank", "time", "submitted_s", "seconds", "batch", "computed_tokens", "reused_tokens"}, set(item))
        latency = summary["latency_s"]
        self.assertEqual((latency["n"], latency["max"]), (len(items), max(item["seconds"] for item in items)))
        speed = summary["speed"]
        self.assertAlmostEqual(speed["scored_tokens_per_s"], summary["tokens"]["scored"] / speed["seconds"]["total"], delta=0.1)
        self.assertAlmostEqual(speed["scored_tokens_per_s_and_rank"] * 2, speed["scored_tokens_per_s"], places=6)
        self.assertLessEqual({"checkpoint", "tokenizer_sha256", "encoder", "records", "numerics_version", "seed"}, set(summary["identity"]))
        self.assertLessEqual({"program", "ranks", "hosts", "threads", "layout", "cone"}, set(summary["options"]))

    def test_the_rows_of_each_layer_are_those_of_the_cone(self):
        # One wanted row at the end of a context, alone and as the end of two requests that share all but the choice.
        config = json.loads((ROOT / "inputs" / "models" / "nano" / "config.json").read_text(encoding="utf-8"))["text_config"]
        n, layers, window = 1000, config["num_hidden_layers"], config["sliding_window"]
        first = max(config["kv_source_layer_ids"])
        ids = [0] + [3 + (17 * i) % 900 for i in range(n - 1)]
        lines = [json.dumps({"custom_id": str(i), "url": "bathys:loglikelihood", "body": {"context_ids": ids, "continuation_ids": [[300 + i]]}})
                 for i in range(2)]
        for name, options, computed_of in (("alone", (), lambda full: full), ("shared", (), lambda full: full + 1),
                                           ("off", ("--cone", "off", "--prefix-sharing", "off"), lambda full: 2 * n)):
            requests = self.write("rows.jsonl", "\n".join(lines[:1] if name == "alone" else lines) + "\n")
            self.assertEqual(self.evaluate(requests, *options, name=name).returncode, OK)
            for layer, rows in enumerate(self.summary(name)["layer_rows"]):
                full = n if layer < first else min(n, 1 + (layers - 1 - layer) * (window - 1))
                self.assertEqual(rows["full"], {"needed": full * (1 if name == "alone" else 2), "computed": computed_of(full)}, (name, layer))

    def test_a_dry_run_counts_what_the_run_then_does_and_writes_nothing(self):
        requests = self.mixed()
        dry = self.evaluate(requests, "--dry-run", "--prefix-sharing", "off")
        self.assertEqual(dry.returncode, OK, dry.stderr)
        self.assertFalse((self.folder / "run").exists())
        self.assertNotIn("event=load", dry.stderr)
        value = {line[:26].strip(): line[26:].split()[0] for line in dry.stdout.splitlines()}
        self.assertEqual(value["seconds"], "-")
        self.assertEqual(self.evaluate(requests, "--prefix-sharing", "off").returncode, SOME_FAILED)
        summary = self.summary()
        self.assertEqual(int(value["requests"]), summary["requests"]["lines"])
        self.assertEqual(int(value["answers"]), summary["counts"]["total"])
        self.assertEqual(int(value["scored tokens"]), summary["tokens"]["scored"])
        self.assertGreaterEqual(int(value["drawn tokens"]), summary["tokens"]["generated"])
        self.assertEqual(int(value["unsupported_parameter"]), 1)
        rows = summary["speed"]["prefill_rows"] + summary["speed"]["decode_rows"]
        self.assertLessEqual(int(value["prefill rows"]), rows)
        self.assertLessEqual(rows, int(value["prefill rows"]) + int(value["drawn tokens"]))
        self.assertEqual(int(value["model bytes"]), json.loads(run("inspect", SHARDS, "--json").stdout)["bytes"])
        again = self.evaluate(requests, "--dry-run", "--speed-from", self.folder / "run", name="other", ranks=2)
        self.assertRegex(again.stdout, r"\nseconds +\d+ ")
        shared = int(re.search(r"^prefill rows +(\d+)", again.stdout, re.M)[1])
        self.assertLess(shared, int(value["prefill rows"]))
        self.assertEqual(self.evaluate(requests, name="shared").returncode, SOME_FAILED)
        summary = self.summary("shared")
        self.assertLessEqual(summary["speed"]["prefill_rows"] + summary["speed"]["decode_rows"], shared + int(value["drawn tokens"]))

    def test_a_dry_run_counts_shared_beginnings_of_any_length_as_the_run_computes_them(self):
        lines = []
        for n in range(1, 15):
            choices = {"context_ids": [20 * n + i for i in range(n)], "continuation_ids": [[700, 701, 702], [703, 704], [705]]}
            drawn = {"context_ids": [20 * n + 400 + i for i in range(n)], "max_gen_toks": 3, "repeats": 2}
            lines += [json.dumps({"custom_id": f"{kind}-{n}", "url": f"bathys:{kind}", "body": body})
                      for kind, body in (("loglikelihood", choices), ("generate_until", drawn))]
        requests = self.write("requests.jsonl", "\n".join(lines) + "\n")
        dry = self.evaluate(requests, "--dry-run")
        self.assertEqual(self.evaluate(requests).returncode, OK)
        self.assertEqual(int(re.search(r"^prefill rows +(\d+)", dry.stdout, re.M)[1]), self.summary()["speed"]["prefill_rows"])

    def test_the_engines_benchmark_says_what_the_cone_is_worth(self):
        done = run("bench", "engine", "--model", SHARDS, "--requests", "2", "--context", "16", "--generated", "2", "--repeats", "1", "--cone-context", "700")
        self.assertEqual(done.returncode, OK, done.stderr)
        rows = re.search(r"the last of 700 rows, by the cone: [\d.]+ s and (\d+) rows of layers; all rows: [\d.]+ s and (\d+)\n", done.stdout)
        self.assertEqual((int(rows[1]), int(rows[2])), (5 * 700 + (1 + 2 * 31) + (1 + 31) + 1, 8 * 700))  # windows of 32; layers 5 to 7 are above the caches
        self.assertRegex(done.stdout, r"all rows / the cone: [\d.]+ in time, 1\.[45]\d in rows\n")

    def test_a_dry_run_refuses_what_the_run_would(self):
        done = self.evaluate(self.write("bad", "{}\n"), "--dry-run")
        self.assert_refused(done, BAD_REQUESTS, "line 1: missing_field")
        self.assertIn("line 1: missing_field", done.stderr)
        self.assert_refused(self.evaluate(CASES / "c17_one_item.jsonl", "--dry-run", "--speed-from", self.folder), BAD_INPUT, "summary.json")

    def test_options_that_cannot_be_are_refused(self):
        one = CASES / "c17_one_item.jsonl"
        self.assert_refused(self.evaluate(one, "--max-length", "4097"), USAGE, "--max-length is 4097", "4096 positions")
        self.assertEqual(self.evaluate(one, "--max-length", "4096").returncode, OK)
        (self.folder / "link").symlink_to(SHARDS)
        before = sorted(os.listdir(SHARDS))
        for out in (SHARDS, os.path.join(SHARDS, "run"), self.folder / "link" / "deep" / "run"):
            self.assert_refused(run("eval", "--model", SHARDS, "--requests", one, "--out", out), USAGE, "lies in the folder of the shards")
        self.assertEqual(sorted(os.listdir(SHARDS)), before)


class Pinned(Scratch):
    """Whoever changes a bit of the results raises the version that stands for it, and pins the new ones (BATHYS_PIN=1)."""

    def test_results_belong_to_their_versions(self):
        found = {}
        for name in ("c20_stops", "c24_think_end", "c17_one_item"):
            done = self.evaluate(CASES / f"{name}.jsonl", name=name)
            self.assertEqual(done.returncode, OK, done.stderr)
            found[name] = hashlib.sha256(self.result_bytes(name)).hexdigest()
        bodies = [json.loads(line)["body"] for line in (CASES / "chat_cases.jsonl").read_text(encoding="utf-8").split("\n") if line]
        lines = [json.dumps({"custom_id": str(i), "url": "bathys:loglikelihood", "body": {**body, "continuations": [" and"]}})
                 for i, body in enumerate(bodies) if len(json.dumps(body)) < 900][:12]
        self.evaluate(self.write("chats.jsonl", "\n".join(lines) + "\n"), name="chats")
        found["chats"] = hashlib.sha256(self.result_bytes("chats")).hexdigest()
        identity = json.loads((self.folder / "chats" / "manifest.json").read_text())["identity"]
        found["versions"] = {key: identity[key] for key in ("encoder", "records", "numerics_version")}
        if os.environ.get("BATHYS_PIN"):
            PINNED.write_text(json.dumps(found, indent=1) + "\n")
        pinned = json.loads(PINNED.read_text())
        self.assertEqual(found, pinned, "results or versions changed: if the results were meant to, raise kNumericsVersion (numerics/version.hpp), "
                         "kPromptVersion (tokenizer/prompt.hpp) or kRecordVersion (eval/task.hpp), then run this test with BATHYS_PIN=1")


if __name__ == "__main__":
    unittest.main()
