#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What of the cases C15 C20 C22 C27 C37 C39 stands in no other test: fault codes, ranks, files that grow, run folders that are full."""

import json
import math
import os
import subprocess
import tempfile
import threading
import time
import unittest

from harness import BAD_REQUESTS, CASES, OK, ROOT, SHARDS, STOPPED, USAGE, Scratch, command, environment, run

WORK = CASES / "work_200.jsonl"
FULL = bool(os.environ.get("BATHYS_FULL"))


class Codes(Scratch):
    def test_each_kind_of_fault_has_its_code(self):
        codes = {"c15_not_json_": "invalid_json_line", "c15_key_twice_": "invalid_json_line", "c15_seed_": "wrong_type", "c15_ids_": "wrong_type",
                 "c22_temperature_": "wrong_type"}
        for start, code in codes.items():
            paths = sorted(CASES.glob(start + "*_refuse.jsonl"))
            self.assertTrue(paths)
            for path in paths if FULL else paths[:: max(1, len(paths) // 3)]:
                with self.subTest(path.name):
                    # A dry run checks as the run does.
                    self.assert_refused(self.evaluate(path, "--dry-run"), BAD_REQUESTS, f"line 1: {code}: ")


class Generation(Scratch):
    def test_stops_and_tiny_temperatures_on_any_ranks(self):
        for name in ("c20_stops", "c22_tiny_temperature"):
            self.assertEqual(self.evaluate(CASES / f"{name}.jsonl").returncode, OK)
            alone = self.result_bytes()
            for ranks in (2, 4) if FULL else (4,):
                self.assertEqual(self.evaluate(CASES / f"{name}.jsonl", ranks=ranks).returncode, OK)
                self.assertEqual(self.result_bytes(), alone)

    def test_tiny_temperatures_draw_the_greedy_tokens_with_finite_logprobs(self):
        lines = [json.loads(line) for line in (CASES / "c22_tiny_temperature.jsonl").read_text().split("\n") if line]
        for line in lines:
            line["body"].update(token_ids=True, top_logprobs=2)
        requests = self.write("requests.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual(self.evaluate(requests).returncode, OK)
        results = {key: record["result"] for (key, _), record in self.results().items()}
        for n in range(1, 9):
            self.assertEqual(results[f"t{n}"]["token_ids"], results["zero"]["token_ids"])
        for result in results.values():
            self.assertTrue(result["logprobs"])
            for token in result["logprobs"]:
                self.assertTrue(all(math.isfinite(value) for value in [token["logprob"], *(other["logprob"] for other in token["top"])]))


class Streams(Scratch):
    def test_the_same_requests_by_a_pipe_are_the_same_run(self):
        requests = CASES / "c20_stops.jsonl"
        self.assertEqual(self.evaluate(requests).returncode, OK)
        before = self.result_bytes()
        arguments = command("eval", "--model", SHARDS, "--requests", "/dev/stdin", "--out", self.folder / "run")
        again = subprocess.run(arguments, input=requests.read_bytes(), env=environment(), capture_output=True, timeout=120, check=False)
        self.assertEqual(again.returncode, OK, again.stderr)
        other = subprocess.run(arguments, input=CASES.joinpath("c17_one_item.jsonl").read_bytes(), env=environment(), capture_output=True,
                               timeout=120, check=False)
        self.assertEqual(other.returncode, 2)
        self.assertIn(b"requests_sha256", other.stderr)
        self.assertEqual(self.result_bytes(), before)

    def test_a_file_that_grows_while_it_is_read(self):
        line = lambda n: json.dumps({"custom_id": str(n), "url": "bathys:loglikelihood_rolling", "body": {"text": "And God said"}}) + "\n"
        path = self.write("growing", "".join(line(n) for n in range(50)))
        done = threading.Event()

        def grow():
            with open(path, "a", encoding="utf-8") as file:
                for n in range(50, 2000):
                    if done.is_set():
                        break
                    file.write(line(n))
                    file.flush()
                    time.sleep(0.001)

        writer = threading.Thread(target=grow)
        writer.start()
        found = self.evaluate(path, "--max-failed", "0", timeout=120)
        done.set()
        writer.join()
        # All that was there when it was read, or a line that was torn at that moment, by name.
        self.assertIn(found.returncode, (OK, BAD_REQUESTS), found.stderr)
        if found.returncode == OK:
            ids = [key for key, _ in self.results()]
            self.assertEqual(ids, [str(n) for n in range(len(ids))])
            self.assertGreaterEqual(len(ids), 50)
        else:
            self.assertIn("invalid_json_line", found.stderr)


class Start(Scratch):
    def test_a_summary_begins_with_the_first_start(self):
        done = self.evaluate(WORK, "--row-budget", "4", "--max-seconds", "0.3", "--grace-seconds", "0")
        self.assertEqual(done.returncode, STOPPED, done.stderr)
        first = json.loads((self.folder / "run" / "manifest.json").read_text())["first_start"]
        time.sleep(1.1)  # times have whole seconds
        self.assertEqual(self.evaluate(WORK, fresh=False).returncode, OK)
        self.assertEqual(self.summary()["first_start"], first)
        self.assertGreater(self.summary()["finished"], first)


@unittest.skipUnless(os.geteuid() == 0, "mounting a small file system needs root")
class FullFolder(Scratch):
    """A small file system runs full: the run stops with 75 and, with room, goes on to the same bytes. One that is read only is refused."""

    def small(self):
        place = tempfile.mkdtemp(dir=self.folder)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, check=False).returncode != 0:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", place], check=False)
        return place

    def test_a_run_folder(self):
        place = self.small()
        self.assertEqual(self.evaluate(WORK, name="whole").returncode, OK)
        arguments = ("eval", "--model", SHARDS, "--requests", WORK, "--out", os.path.join(place, "run"))
        self.assert_refused(run(*arguments), STOPPED, place)
        subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)
        done = run(*arguments)
        self.assertEqual(done.returncode, OK, done.stderr)
        with open(os.path.join(place, "run", "results.jsonl"), "rb") as results:
            self.assertEqual(results.read(), self.result_bytes("whole"))

    def test_a_folder_that_cannot_be_written(self):
        place = self.small()
        requests = CASES / "c17_one_item.jsonl"
        arguments = ("eval", "--model", SHARDS, "--requests", requests, "--out", os.path.join(place, "run"))
        self.assertEqual(run(*arguments).returncode, OK)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        for out in ("run", "another"):  # a finished run cannot be locked, and so not be shown
            for ranks in (1, 2):
                refused = run("eval", "--model", SHARDS, "--requests", requests, "--out", os.path.join(place, out), ranks=ranks)
                self.assert_refused(refused, USAGE, os.path.join(place, out), "can be written")

    def test_a_folder_of_shards(self):
        place = self.small()
        subprocess.run(["mount", "-o", "remount,size=1m", place], check=True)
        arguments = ("convert", ROOT / "inputs" / "models" / "nano", os.path.join(place, "shards"))
        self.assert_refused(run(*arguments), STOPPED, place)
        self.assertNotEqual(run("verify", os.path.join(place, "shards")).returncode, OK)
        subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)
        self.assertEqual(run(*arguments).returncode, OK)
        self.assertEqual(run("verify", os.path.join(place, "shards")).returncode, OK)


if __name__ == "__main__":
    unittest.main()
