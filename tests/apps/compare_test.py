#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bathys compare: two runs answer by answer, with one item, with failed items, of other requests. Case C17."""

import json
import shutil
import unittest

from harness import BAD_INPUT, CASES, OK, REQUESTS, SOME_FAILED, USAGE, Scratch, read_lines, run

GREEDY = {"context": "In the beginning God", "max_gen_toks": 6, "gold": ", and the Spirit", "task": "text"}


class Compare(Scratch):
    def compare(self, a="a", b="b", *options):
        return run("compare", self.folder / a, self.folder / b, *options)

    def comparison(self, *names):
        done = self.compare(*(names or ("a", "b")), "--json")
        self.assertEqual((done.returncode, done.stderr), (OK, ""))
        return json.loads(done.stdout, parse_constant=lambda name: self.fail(f"{name} is no JSON"))

    def edit(self, name, file, change):
        """Rewrites the lines of a result file, as another model would have."""
        path = self.folder / name / file
        lines = [change(line) or line for line in read_lines(path)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def lines(self, name, bodies):
        return self.write(name, "".join(json.dumps({"custom_id": key, "url": "bathys:" + url, "body": body}) + "\n"
                                        for key, (url, body) in bodies.items()))

    def test_a_run_equals_itself(self):
        choices = (REQUESTS / "choices.jsonl").read_text(encoding="utf-8").split("\n")[:24]
        requests = self.write("requests", "\n".join(choices) + "\n")
        self.assertEqual(self.evaluate(requests, name="a").returncode, OK)
        self.assertEqual(self.evaluate(requests, name="b", ranks=2).returncode, OK)
        found = self.comparison()
        self.assertEqual(found["answers"]["total"], found["answers"]["same"])
        self.assertEqual(found["changed"], [])
        self.assertEqual(found["largest_logprob_difference"]["sums"]["difference"], 0)
        self.assertEqual({score["p_value"] for score in found["scores"]}, {1.0})
        self.assertEqual(found["differences"]["ranks"], ["1", "2"])  # how they ran, none of what they depend on
        summary = self.summary("a")["tasks"]
        for score in found["scores"]:
            self.assertAlmostEqual(score["a"], summary[score["task"]][score["score"]]["mean"], places=12)
        # Another model: three answers turned right to wrong, one log-probability moved.
        right = [line["custom_id"] for line in read_lines(self.folder / "a" / "scores.jsonl") if line["scores"]["acc"] == 1][:3]
        self.edit("b", "scores.jsonl", lambda line: line["scores"].update(acc=0) if line["custom_id"] in right else None)
        self.edit("b", "results.jsonl", lambda line: line["result"]["logprob"].__setitem__(1, line["result"]["logprob"][1] - 0.5)
                  if line["custom_id"] == right[1] else None)
        found = self.comparison()
        acc = next(score for score in found["scores"] if score["score"] == "acc")
        self.assertEqual((acc["higher"], acc["lower"], acc["test"]), (0, 3, "exact McNemar"))
        self.assertAlmostEqual(acc["p_value"], 0.25, places=12)
        self.assertAlmostEqual(acc["difference"], -3 / acc["n"], places=12)
        self.assertEqual([(one["custom_id"], one["what"], one["a"], one["b"]) for one in found["changed"]],
                         [(key, "acc", 1.0, 0) for key in right])
        worst = found["largest_logprob_difference"]["sums"]
        self.assertEqual((worst["custom_id"], worst["place"]), (right[1], "logprob[1]"))
        self.assertAlmostEqual(worst["difference"], 0.5, places=12)
        text = self.compare("a", "b", "--changed", "2").stdout
        self.assertIn("changed answers", text)
        self.assertIn("1 more; --json lists all of them", text)

    def test_runs_of_one_item(self):
        for name in "ab":
            self.assertEqual(self.evaluate(CASES / "c17_one_item.jsonl", name=name).returncode, OK)
        for score in self.comparison()["scores"]:
            self.assertEqual((score["n"], score["difference"], score["standard_error"], score["p_value"]), (1, 0, None, None))
        self.assertRegex(self.compare().stdout, r"document_bits_per_byte +1 +\S+ +\S+ +0 +- +0 +0 +-  paired t")

    def test_failed_answers_and_repeats(self):
        requests = self.lines("requests", {
            "good": ("generate_until", GREEDY),
            "bad": ("loglikelihood", {"context": "a", "continuations": ["In the beginning God"], "gold": 0, "max_length": 1, "task": "none"}),
            "many": ("generate_until", {**GREEDY, "repeats": 4, "temperature": 1, "token_ids": True, "top_logprobs": 1})})
        self.assertEqual(self.evaluate(requests, name="a").returncode, SOME_FAILED)
        self.assertEqual(self.evaluate(requests, "--seed", "7", name="b").returncode, SOME_FAILED)
        found = self.comparison()
        self.assertEqual(found["answers"]["failed_in_both"], 1)
        self.assertEqual(found["differences"]["seed"], ["0", "7"])
        self.assertEqual(found["texts"]["compared"], 5)
        self.assertGreater(found["texts"]["different"], 0)
        match = next(score for score in found["scores"] if score["score"] == "exact_match")
        self.assertEqual(match["n"], 2)  # requests, not repeats
        # One that failed in one run alone.
        failure = {"ok": False, "error": {"code": "does_not_fit", "message": "m"}}
        self.edit("b", "results.jsonl", lambda line: {**{k: v for k, v in line.items() if k != "result"}, **failure}
                  if line["custom_id"] == "good" else None)
        self.edit("b", "scores.jsonl", lambda line: line.update(scores={}) if line["custom_id"] == "good" else None)
        found = self.comparison()
        self.assertEqual((found["answers"]["failed_only_in_a"], found["answers"]["failed_only_in_b"]), (0, 1))
        self.assertIn({"custom_id": "good", "repeat": 0, "task": "text", "what": "ok", "a": True, "b": "does_not_fit"}, found["changed"])
        self.assertEqual(next(s for s in found["scores"] if s["score"] == "exact_match")["n"], 1)

    def test_the_order_of_the_requests_does_not_matter(self):
        bodies = {"x": ("loglikelihood_rolling", {"text": "And God said"}), "y": ("generate_until", GREEDY)}
        self.evaluate(self.lines("one", bodies), name="a")
        self.evaluate(self.lines("two", dict(reversed(bodies.items()))), name="b")
        self.assertEqual(self.comparison()["answers"], {"total": 2, "same": 2, "failed_only_in_a": 0, "failed_only_in_b": 0,
                                                        "failed_in_both": 0})

    def test_runs_of_other_requests_are_refused_with_the_reason(self):
        one = {"x": ("loglikelihood_rolling", {"text": "And God said"})}
        self.evaluate(self.lines("one", one), name="a")
        self.evaluate(self.lines("two", {**one, "y": ("loglikelihood_rolling", {"text": "Let"})}), name="b")
        self.evaluate(self.lines("three", {"x": ("loglikelihood_rolling", {"text": "And God did"})}), name="c")
        self.assert_refused(self.compare("a", "b"), USAGE, "the same requests", "the second has 2 answers, 1")
        self.assert_refused(self.compare("b", "a"), USAGE, "the same requests", '"y"', "in the first alone")
        self.assert_refused(self.compare("a", "c"), USAGE, "the same requests", 'the lines of "x" differ')

    def test_folders_of_no_finished_run_are_refused(self):
        self.evaluate(CASES / "c17_one_item.jsonl", name="a")
        self.assert_refused(self.compare("a", "nowhere"), BAD_INPUT, "nowhere is no folder")
        (self.folder / "empty").mkdir()
        self.assert_refused(self.compare("a", "empty"), BAD_INPUT, "no results.jsonl")
        shutil.copytree(self.folder / "a", self.folder / "part")
        (self.folder / "part" / "results.jsonl").rename(self.folder / "part" / "results.partial.jsonl")
        self.assert_refused(self.compare("part", "a"), USAGE, "not finished")
        shutil.copytree(self.folder / "a", self.folder / "torn")
        (self.folder / "torn" / "results.jsonl").write_text("{}\n")
        self.assert_refused(self.compare("a", "torn"), BAD_INPUT, "torn/results.jsonl")
        self.assert_refused(run("compare", self.folder / "a"), USAGE)


if __name__ == "__main__":
    unittest.main()
