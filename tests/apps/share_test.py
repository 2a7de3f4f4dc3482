#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One request file answered in shares by several runs and put together: no line lost, none twice, no byte changed."""

import fcntl
import json
import shutil
import unittest

from harness import BAD_INPUT, CASES, OK, SOME_FAILED, STOPPED, USAGE, Scratch, read_lines, resealed


class Shares(Scratch):
    def setUp(self):
        super().setUp()
        lines = (CASES / "work_200.jsonl").read_text(encoding="utf-8").split("\n")[:19]
        lines += (CASES / "c20_stops.jsonl").read_text(encoding="utf-8").split("\n")[:4]
        lines.insert(3, "")  # a blank line is no request
        for key, body in (("many", {"prompt": ["And", "God"], "n": 2, "max_tokens": 4}), ("bad", {"prompt": "a", "echo": True})):
            lines.append(json.dumps({"custom_id": key, "url": "/v1/completions", "body": body}))
        self.requests = self.write("requests.jsonl", "\n".join(line for line in lines) + "\n")

    def shares(self, n, *options, ranks=1):
        for k in range(n):
            done = self.evaluate(self.requests, "--share", f"{k}/{n}", *options, name=f"share-{k}", ranks=ranks)
            self.assertIn(done.returncode, (OK, SOME_FAILED), done.stderr)
        return [self.folder / f"share-{k}" for k in range(n)]

    def merge(self, sources, *options, fresh=True):
        return self.evaluate(self.requests, "--take-from", *sources, *options, name="merged", fresh=fresh)

    def assert_whole(self):
        for name in ("results.jsonl", "failed.jsonl", "scores.jsonl", "openai_errors.jsonl"):
            self.assertEqual((self.folder / "merged" / name).read_bytes(), (self.folder / "whole" / name).read_bytes(), name)
        merged, whole = self.summary("merged"), self.summary("whole")
        for part in ("counts", "tokens", "tasks", "requests", "lengths"):
            self.assertEqual(merged[part], whole[part])

    def test_shares_put_together_equal_the_whole(self):
        self.assertEqual(self.evaluate(self.requests, name="whole").returncode, SOME_FAILED)
        sources = self.shares(3)
        ids = [line["custom_id"] for source in sources for line in read_lines(source / "results.jsonl")]
        self.assertEqual(sorted(ids), sorted(line["custom_id"] for line in read_lines(self.folder / "whole" / "results.jsonl")))
        self.assertEqual([self.summary(source.name)["requests"]["lines"] for source in sources], [9, 8, 8])
        done = self.merge(sources, "--no-new-answers")
        self.assertEqual(done.returncode, SOME_FAILED, done.stderr)
        self.assertNotIn("event=load", done.stderr)  # nothing was computed
        self.assert_whole()
        # Again, also with the shares in another order: nothing is taken twice.
        journals = sorted((self.folder / "merged" / "journal").iterdir())
        self.assertEqual(self.merge(sources[::-1], "--no-new-answers", fresh=False).returncode, SOME_FAILED)
        self.assertEqual(sorted((self.folder / "merged" / "journal").iterdir()), journals)
        self.assert_whole()

    def test_the_starts_of_merged_runs_are_counted_not_their_files(self):
        sources = [self.folder / f"share-{k}" for k in range(2)]
        # The first share in two starts of two groups each, the second in one.
        done = self.evaluate(self.requests, "--share", "0/2", "--max-failed", "0", "--layout", "groups=2", "--row-budget", "3", name="share-0", ranks=2)
        self.assertIn(done.returncode, (OK, SOME_FAILED), done.stderr)
        self.evaluate(self.requests, "--share", "0/2", "--retry-failed", "--layout", "groups=2", name="share-0", ranks=2, fresh=False)
        self.assertIn(self.evaluate(self.requests, "--share", "1/2", "--layout", "groups=2", name="share-1", ranks=2).returncode, (OK, SOME_FAILED))
        files = [path for source in sources for path in sorted((source / "journal").iterdir())]
        starts = [len({path.name[:6] for path in (source / "journal").iterdir()}) for source in sources]
        self.assertEqual((starts, len(files)), ([2, 1], 6))
        self.assertEqual(self.merge(sources, "--no-new-answers").returncode, SOME_FAILED)
        summary, parts = self.summary("merged"), [self.summary(source.name) for source in sources]
        self.assertEqual(summary["restarts"], sum(starts) - 1)
        for phase, seconds in summary["speed"]["seconds"].items():
            self.assertAlmostEqual(seconds, sum(part["speed"]["seconds"][phase] for part in parts), places=5)
        # What was taken in part is completed as the same starts.
        journal = self.folder / "merged" / "journal"
        names = sorted(path.name for path in journal.iterdir())
        self.assertEqual(names, [f"{start:06d}-{rank:06d}.jsonl" for start in (1, 2, 3) for rank in (0, 1)])
        texts = [(journal / name).read_bytes() for name in names]
        for gone in (names[1], names[2], names[5]):
            (journal / gone).unlink()
        self.assertEqual(self.merge(sources, "--no-new-answers", fresh=False).returncode, SOME_FAILED)
        self.assertEqual([(journal / name).read_bytes() for name in sorted(path.name for path in journal.iterdir())], texts)

    def test_an_answer_in_one_folder_and_a_failure_in_another_are_refused(self):
        # A first answer is one like any other where a start was to answer again what failed.
        self.assertEqual(self.evaluate(self.requests, "--retry-failed", name="whole").returncode, SOME_FAILED)
        other = self.folder / "other"
        shutil.copytree(self.folder / "whole", other)
        journal = next((other / "journal").glob("*.jsonl"))
        lines = journal.read_text().split("\n")
        at = next(n for n, line in enumerate(lines) if '"ok":true' in line)
        record = json.loads(lines[at])
        key = record["record"]["custom_id"]
        record["record"].pop("result")
        for code, expected in (("nonfinite_value", BAD_INPUT), ("does_not_fit", SOME_FAILED)):
            record["record"].update(ok=False, error={"code": code, "message": "layer 1, token 2"})
            lines[at] = json.dumps(record, separators=(",", ":"))
            journal.write_text(resealed("\n".join(lines), other))
            done = self.merge([self.folder / "whole", other], "--no-new-answers")
            if expected == BAD_INPUT:
                self.assert_refused(done, BAD_INPUT, "hold different answers", key, "(failed)")
                # Answered again where it failed, it contradicts nothing.
                again = self.evaluate(self.requests, "--retry-failed", name="other", fresh=False)
                self.assertEqual(again.returncode, SOME_FAILED, again.stderr)
                self.assertEqual(self.merge([self.folder / "whole", other], "--no-new-answers").returncode, SOME_FAILED)
                self.assert_whole()
            else:
                self.assertEqual(done.returncode, expected, done.stderr)

    def test_a_missing_share_is_seen_and_can_be_answered(self):
        self.assertEqual(self.evaluate(self.requests, name="whole").returncode, SOME_FAILED)
        sources = self.shares(4)
        done = self.merge([sources[0], sources[2], sources[3]], "--no-new-answers")
        self.assertEqual(done.returncode, STOPPED, done.stderr)
        self.assertFalse((self.folder / "merged" / "results.jsonl").exists())
        self.assertTrue((self.folder / "merged" / "results.partial.jsonl").exists())
        done = self.merge([sources[0], sources[2], sources[3]], fresh=False)  # without the option the rest is computed
        self.assertEqual(done.returncode, SOME_FAILED, done.stderr)
        self.assert_whole()

    def test_what_does_not_belong_together_is_refused(self):
        sources = self.shares(2)
        self.assert_refused(self.evaluate(self.requests, "--share", "1/2", name="share-0", fresh=False), USAGE, "share = 0/2", "1/2")
        self.assert_refused(self.evaluate(self.requests, name="share-0", fresh=False), USAGE, "share = 0/2")
        other = self.folder / "other"
        shutil.copytree(sources[1], other)
        manifest = json.loads((other / "manifest.json").read_text())
        manifest["identity"]["seed"] = "7"
        (other / "manifest.json").write_text(json.dumps(manifest))
        self.assert_refused(self.merge([sources[0], other], "--no-new-answers"), USAGE, "other", "seed = 7")
        self.assert_refused(self.merge([self.folder / "nowhere"]), BAD_INPUT, "nowhere")
        self.assert_refused(self.merge([self.folder / "merged"], fresh=False), USAGE, "the run folder itself")
        with open(sources[0] / "run.lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assert_refused(self.merge(sources), USAGE, "a run is at work there")
        for share in ("2/2", "-1/2", "1", "1/2/3", "a/b", "0/0", "1/ 2"):
            self.assert_refused(self.evaluate(self.requests, "--share", share, name="x"), USAGE, "--share is")
        # Answers that contradict each other.
        journal = next((sources[0] / "journal").glob("*.jsonl"))
        text = journal.read_text()
        record = next(line for line in text.split("\n") if '"custom_id":"many"' in line or '"ok":true' in line)
        lie = record.replace('"usage":{"prompt_tokens":', '"usage":{"prompt_tokens":1')
        self.assertNotEqual(lie, record)
        journal.write_text(text + resealed(lie, sources[0]) + "\n")
        self.assert_refused(self.merge(sources, "--no-new-answers"), BAD_INPUT, "hold different answers")


if __name__ == "__main__":
    unittest.main()
