#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Request files as users write them: what is a line, numbers, repeated keys, weights that are no numbers, stops, temperatures, thinking. Cases C13 C15 C17 C20 C22 C24."""

import json
import re
import shutil
import subprocess
import sys
import unittest

from harness import BAD_REQUESTS, CASES, OK, ROOT, SOME_FAILED, Scratch, run


def raw_metas(path):
    """The text of "meta", last in its line, of every line; the program writes none itself after it."""
    return [line.rsplit(',"meta":', 1)[1][:-1] for line in path.read_text(encoding="utf-8").split("\n") if line]


class Lines(Scratch):
    def test_every_request_of_an_unusual_file_is_answered_in_order(self):
        for path in sorted(CASES.glob("c13_*_request*.jsonl")):
            with self.subTest(path.name):
                done = self.evaluate(path)
                self.assertEqual(done.returncode, OK, done.stderr)
                results = list(self.results().values())
                self.assertEqual(len(results), int(re.search(r"_(\d+)_request", path.name)[1]))
                self.assertTrue(all(result["ok"] for result in results))
                before = self.result_bytes()
                self.assertEqual(self.evaluate(path, fresh=False).returncode, OK)
                self.assertEqual(self.result_bytes(), before)

    def test_line_separators_inside_strings_are_text(self):
        self.evaluate(CASES / "c13_u2028_3_requests.jsonl")
        self.assertEqual([r["result"]["n_bytes"] for r in self.results().values()], [16, 16, 14])

    def test_the_hash_of_a_line_covers_its_carriage_return(self):
        import hashlib
        path = CASES / "c13_crlf_3_requests.jsonl"
        self.evaluate(path)
        lines = path.read_bytes().split(b"\n")
        self.assertEqual([r["request_sha256"] for r in self.results().values()],
                         [hashlib.sha256(line).hexdigest() for line in lines if line])


class Refusals(Scratch):
    def test_every_file_that_must_be_refused_is(self):
        paths = sorted(CASES.glob("*_refuse.jsonl"))
        self.assertGreater(len(paths), 40)
        for path in paths:
            with self.subTest(path.name):
                done = self.evaluate(path, timeout=30)
                self.assert_refused(done, BAD_REQUESTS, path.name, "line ")
                self.assertFalse((self.folder / "run").exists())

    def test_an_empty_file_and_a_repeated_id_are_refused(self):
        line = '{"custom_id":"a","url":"bathys:loglikelihood_rolling","body":{"text":"x"}}\n'
        self.assert_refused(self.evaluate(self.write("empty", "\n\n")), BAD_REQUESTS, "empty_file")
        self.assert_refused(self.evaluate(self.write("twice", line + line)), BAD_REQUESTS, "line 2: duplicate_custom_id")

    def test_faults_are_listed_up_to_a_hundred(self):
        done = self.evaluate(self.write("many", "{}\n" * 150))
        self.assert_refused(done, BAD_REQUESTS, "at least 100")
        self.assertEqual(len(re.findall(r"^line \d+: missing_field: ", done.stderr, re.M)), 100)

    def test_an_output_is_no_input(self):
        text = '{"custom_id":"a","url":"bathys:loglikelihood_rolling","body":{"text":"x"}}\n'
        (self.folder / "run" / "journal").mkdir(parents=True)
        for name in ("results.jsonl", "scores.jsonl", "openai_output.jsonl", "openai_errors.jsonl", "results.jsonl.partial", "run.lock",
                     "journal/000001-000000.jsonl"):
            with self.subTest(name):
                path = self.folder / "run" / name
                path.write_text(text)
                self.assert_refused(self.evaluate(path, fresh=False), BAD_REQUESTS, "output_is_input")
                self.assertEqual(path.read_text(), text)
                path.unlink()

    def test_words_of_a_request_make_no_lines_and_no_escapes_of_their_own(self):
        evil = "x\nevent=run \x1b[31m"
        line = json.dumps({"custom_id": "a", "url": "bathys:loglikelihood_rolling", "body": {"text": "x"}, evil: 1})
        done = self.evaluate(self.write("key", line))
        self.assert_refused(done, BAD_REQUESTS, "x\\x0aevent=run \\x1b[31m is unknown")
        self.assertNotIn("\nevent=run", done.stderr)
        self.assertNotIn("\x1b", done.stderr)
        body = {"context": "a", "max_gen_toks": 1, "gold": "b"}
        long = "t" * 100000
        lines = [json.dumps({"custom_id": str(i), "url": "bathys:generate_until", "body": {**body, "task": task}}) for i, task in enumerate((evil, long))]
        done = self.evaluate(self.write("task", "\n".join(lines)))
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("x\\x0aevent=run \\x1b[31m", done.stdout)
        self.assertNotIn("\x1b", done.stdout)
        self.assertLess(max(map(len, done.stdout.splitlines())), 300)
        self.assertEqual(set(self.summary()["tasks"]), {evil, long})
        for member in ({"model": "m" * 100000}, {"temperature": 0, "max_gen_toks": 1}):
            text = json.dumps({"custom_id": "a", "url": "bathys:generate_until", "body": {"context": "a", **member}})
            done = self.evaluate(self.write("long", text.replace('"temperature": 0', '"temperature": 1' + "0" * 100000)))
            self.assert_refused(done, BAD_REQUESTS, "line 1: ")
            self.assertLess(max(map(len, done.stderr.splitlines())), 600)


class Numbers(Scratch):
    def test_meta_comes_back_as_it_was_written(self):
        for name in ("c15_meta_numbers.jsonl", "c15_meta_out_of_range.jsonl"):
            with self.subTest(name):
                done = self.evaluate(CASES / name)
                self.assertEqual(done.returncode, OK, done.stderr)
                self.assertEqual(raw_metas(self.folder / "run" / "results.jsonl"), raw_metas(CASES / name))

    def test_seeds_beyond_doubles_stay_apart(self):
        texts = set()
        paths = sorted(CASES.glob("c15_seed_ok_*.jsonl"))
        for path in paths:
            self.assertEqual(self.evaluate(path).returncode, OK)
            texts.add(self.results()["s", 0]["result"]["text"])
        self.assertEqual(len(texts), len(paths))


class Scores(Scratch):
    def test_one_item_has_a_mean_and_no_standard_error(self):
        done = self.evaluate(CASES / "c17_one_item.jsonl")
        self.assertEqual(done.returncode, OK, done.stderr)
        for score in self.summary()["tasks"][""].values():
            self.assertEqual(score["n"], 1)
            self.assertGreater(score["mean"], 0)
            self.assertIsNone(score["standard_error"])
        self.assertRegex(done.stdout, r"token_perplexity +1 +\d+\.\d+ +-\n")
        strict = subprocess.run([sys.executable, ROOT / "tests" / "cases" / "gen.py", "strict", self.folder / "run" / "summary.json",
                                 self.folder / "run" / "results.jsonl"], check=False)
        self.assertEqual(strict.returncode, 0)

    def test_a_task_whose_items_all_failed_shows_no_items(self):
        body = {"context": "a", "continuations": [" b"], "gold": 0, "max_length": 1, "task": "none"}
        body["continuations"] = ["In the beginning God created the heaven"]
        done = self.evaluate(self.write("f", json.dumps({"custom_id": "x", "url": "bathys:loglikelihood", "body": body}) + "\n"))
        self.assertEqual(done.returncode, 76, done.stderr)
        self.assertEqual(self.summary()["tasks"]["none"]["acc"], {"n": 0, "mean": None, "standard_error": None})
        self.assertEqual(self.summary()["counts"]["failed_by_code"], {"continuation_too_long": 1})
        self.assertEqual((self.folder / "run" / "failed.jsonl").read_bytes(), self.result_bytes())


class BrokenWeights(Scratch):
    """A weight that is no number fails the requests that meet it, and no other; the run goes on to its end."""

    TOKEN = 777  # whose rows are broken

    def shards_with_nan(self, tensor):
        checkpoint, shards = self.folder / "checkpoint", self.folder / tensor
        shutil.copytree(ROOT / "inputs" / "models" / "nano", checkpoint, dirs_exist_ok=True)
        file = checkpoint / json.loads((checkpoint / "model.safetensors.index.json").read_text(encoding="utf-8"))["weight_map"][tensor]
        data = bytearray(file.read_bytes())
        header = 8 + int.from_bytes(data[:8], "little")
        entry = json.loads(data[8:header])[tensor]
        width = 2 * entry["shape"][1]
        at = header + entry["data_offsets"][0] + self.TOKEN * width
        data[at : at + 2] = b"\xc0\x7f"  # a NaN in bfloat16
        file.write_bytes(data)
        done = run("convert", checkpoint, shards)
        self.assertEqual(done.returncode, OK, done.stderr)
        return shards

    def check(self, tensor, failing, words):
        """These requests fail with these words, alike in every layout."""
        shards = self.shards_with_nan(tensor)
        lines = []
        for n, ids in enumerate(([0, 300, 301], [0, 300, self.TOKEN, 301], [0, 302])):
            for kind, body in (("loglikelihood", {"context_ids": ids, "continuation_ids": [[303, 304]]}),
                               ("generate_until", {"context_ids": ids, "max_gen_toks": 4, "temperature": 1, "top_p": 0.9, "repeats": 2, "top_logprobs": 2})):
                lines.append(json.dumps({"custom_id": f"{kind}-{n}", "url": f"bathys:{kind}", "body": body}) + "\n")
        requests = self.write("requests.jsonl", "".join(lines))
        results = set()
        for ranks, options in ((1, ()), (1, ("--row-budget", "1", "--cone", "off")), (2, ()), (2, ("--layout", "groups=2"))):
            out = self.folder / "run"
            shutil.rmtree(out, ignore_errors=True)
            done = run("eval", "--model", shards, "--requests", requests, "--out", out, *options, ranks=ranks)
            self.assert_refused(done, SOME_FAILED, "failed.jsonl", "--retry-failed")
            results.add(self.result_bytes())
            for (key, _), record in self.results().items():
                self.assertEqual(record["ok"], not key.endswith(failing), record)
                if not record["ok"]:
                    self.assertEqual(record["error"]["code"], "nonfinite_value")
                    self.assertRegex(record["error"]["message"], words)
        self.assertEqual(len(results), 1)

    def test_in_the_embedding_it_fails_those_who_have_the_token(self):
        self.check("embed.weight", ("-1",), r"layer \d+, token 2: a sum is not finite")

    def test_in_the_logits_it_fails_all(self):
        self.check("head.weight", ("-0", "-1", "-2"), r"layer 8, token \d+: the logits are not finite")


class Generation(Scratch):
    def texts(self, name):
        done = self.evaluate(CASES / name)
        self.assertEqual(done.returncode, OK, done.stderr)
        return {key[0]: record["result"] for key, record in self.results().items()}

    def test_the_first_completed_stop_ends_the_text(self):
        results = self.texts("c20_stops.jsonl")
        plain = results["plain"]["text"]
        self.assertTrue(plain.startswith(", and the Spirit of God, and the Spirit of God"))
        expected = {"order": ", and ", "inside": ", and the Spi", "nested": "", "first": ", an", "empty": ", and the Spirit ",
                    "string": ", and the Spirit ", "list": ", and the Spirit ", "straddle": ", and the Spirit of ", "prompt": plain,
                    "none": plain}
        self.assertEqual({key: results[key]["text"] for key in expected}, expected)
        self.assertEqual((results["order"]["stop"], results["nested"]["stop"]), ("the", ", and"))
        self.assertEqual((results["none"]["finish_reason"], results["none"]["stop"]), ("length", None))

    def test_tiny_temperatures_are_greedy(self):
        results = self.texts("c22_tiny_temperature.jsonl")
        for n in range(1, 9):
            self.assertEqual(results[f"t{n}"]["text"], results["zero"]["text"])

    def test_reasoning_is_removed_before_stops_cut(self):
        results = self.texts("c24_think_end.jsonl")
        text = results["plain"]["text"]
        answer = text.rsplit(" and", 1)[1].lstrip()
        self.assertEqual(results["only"]["text"], answer)
        self.assertEqual(results["cut"]["text"], answer.split("Spirit")[0])
        self.assertEqual((results["never"]["text"], results["never"]["in_thinking"]), (text, True))
        self.assertEqual(self.summary()["counts"]["in_thinking"], 1)


if __name__ == "__main__":
    unittest.main()
