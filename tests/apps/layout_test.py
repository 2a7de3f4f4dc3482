#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replicas and groups beside each other: stops, full disks, failures and waiting concern all of them, wherever they begin."""

import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from harness import CASES, OK, PROGRAM, SHARDS, SOME_FAILED, STOPPED, USAGE, Scratch, children_of, command, environment, read_lines

WORK = CASES / "work_200.jsonl"


def request(name, url, **body):
    return json.dumps({"custom_id": name, "url": f"bathys:{url}", "body": body}) + "\n"


def journal_records(folder):
    """Records by journal file."""
    return {path.name: sum('"record"' in line for line in path.read_text(encoding="utf-8").splitlines())
            for path in sorted((folder / "journal").glob("*.jsonl"))}


def ranks_of(mpirun):
    """The process of each rank that this mpirun started."""
    found = {}
    for child in children_of(mpirun):
        try:
            names = dict(entry.split(b"=", 1) for entry in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0") if b"=" in entry)
            found[int(names[b"OMPI_COMM_WORLD_RANK"])] = child
        except (OSError, KeyError):  # gone by now, or not a rank yet
            continue
    return found


class Layouts(Scratch):
    whole = None  # results.jsonl of one undisturbed run on one rank, made once

    def setUp(self):
        super().setUp()
        if Layouts.whole is None:
            self.assertEqual(self.evaluate(WORK, name="whole").returncode, OK)
            Layouts.whole = self.result_bytes("whole")

    def assert_goes_on(self, *options, **how):
        done = self.evaluate(WORK, *options, fresh=False, **how)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(self.result_bytes(), Layouts.whole)

    def test_a_layout_that_cannot_be_is_refused(self):
        for ranks, layout, words in [(2, "replicas=3", ("which is 2",)), (3, "tensor=3", ("8 output groups", "1, 2, 4, 8")),
                                     (3, "", ("8 output groups", "--layout")), (2, "replicas=2,groups=2", ("which is 2",))]:
            with self.subTest(layout=layout):
                options = ("--layout", layout) if layout else ()
                self.assert_refused(self.evaluate(WORK, *options, ranks=ranks), USAGE, *words)

    def test_every_group_takes_requests_and_writes_a_journal(self):
        done = self.evaluate(WORK, "--layout", "replicas=2,groups=2", ranks=4)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(self.result_bytes(), Layouts.whole)
        records = journal_records(self.folder / "run")
        self.assertEqual(list(records), [f"000001-{rank:06d}.jsonl" for rank in range(4)])
        self.assertEqual(sum(records.values()), 300)
        self.assertTrue(all(records.values()), records)
        self.assertEqual({item["rank"] for item in read_lines(self.folder / "run" / "items.jsonl")}, {0, 1, 2, 3})

    def test_a_signal_to_one_rank_stops_all_replicas(self):
        out = self.folder / "run"
        arguments = ("eval", "--model", SHARDS, "--requests", WORK, "--out", out, "--layout", "replicas=3", "--grace-seconds", "0", "--row-budget", "12")
        process = subprocess.Popen(command(*arguments, ranks=3), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 120
        while sum(journal_records(out).values()) < 30 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(ranks_of(process.pid)[2], signal.SIGTERM)
        text = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, STOPPED, text)
        self.assertEqual(json.loads((out / "status.json").read_text())["state"], "cancelled")
        partial = len(read_lines(out / "results.partial.jsonl"))
        self.assertEqual(partial, sum(journal_records(out).values()))
        self.assertLess(partial, 300)
        self.assert_goes_on("--layout", "groups=2", ranks=2)

    def test_a_killed_rank_of_another_replica_ends_the_job_and_loses_nothing(self):
        out = self.folder / "run"
        arguments = ("eval", "--model", SHARDS, "--requests", WORK, "--out", out, "--layout", "replicas=2", "--row-budget", "12")
        process = subprocess.Popen(command(*arguments, ranks=2), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 120
        while sum(journal_records(out).values()) < 30 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(ranks_of(process.pid)[1], signal.SIGKILL)
        process.communicate(timeout=120)
        self.assertNotIn(process.returncode, (OK, STOPPED, SOME_FAILED))
        kept = journal_records(out)
        self.assert_goes_on()
        self.assertEqual({name: count for name, count in journal_records(out).items() if name in kept}, kept)
        self.assertEqual(sum(journal_records(out).values()), 300)

    def test_a_full_disk_of_any_writer_stops_all(self):
        out = self.folder / "run"
        script = 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then ulimit -f 16; fi; exec "$@"'
        arguments = ["eval", "--model", SHARDS, "--requests", WORK, "--out", out, "--layout", "replicas=2"]
        done = subprocess.run(["mpirun", "-n", "2", "sh", "-c", script, "sh", PROGRAM, *map(str, arguments)], env=environment(),
                              capture_output=True, text=True, timeout=240, check=False)
        self.assert_refused(done, STOPPED, "000001-000001.jsonl")
        self.assertEqual(json.loads((out / "status.json").read_text())["state"], "cancelled")
        self.assert_goes_on()

    def test_a_time_limit_concerns_all_replicas(self):
        done = self.evaluate(WORK, "--layout", "replicas=2", "--row-budget", "4", "--max-seconds", "0.5", "--grace-seconds", "0", ranks=2)
        self.assertEqual(done.returncode, STOPPED, done.stderr)
        self.assert_goes_on("--layout", "replicas=2", ranks=2)

    def test_failures_are_counted_over_all_replicas(self):
        lines = "".join(request(f"bad-{n}", "generate_until", context="a", max_gen_toks=10, max_length=10) for n in range(40))
        requests = self.write("requests.jsonl", lines + WORK.read_text(encoding="utf-8"))
        done = self.evaluate(requests, "--layout", "replicas=2", "--max-failed", "20", ranks=2)
        self.assertEqual(done.returncode, SOME_FAILED, done.stderr)
        status = json.loads((self.folder / "run" / "status.json").read_text())
        self.assertEqual(status["state"], "failed")
        self.assertGreater(status["failed"], 20)
        self.assertLess(status["done"], 340)
        more = self.evaluate(requests, "--layout", "replicas=2", "--max-failed", "40", ranks=2, fresh=False)
        self.assertEqual(more.returncode, SOME_FAILED, more.stderr)
        self.assertEqual(self.summary()["counts"]["failed_by_code"], {"context_length_exceeded": 40})

    def test_a_replica_that_has_ended_waits_for_a_slow_one(self):
        # One row a step: the long document takes its replica far longer than the watchdog waits.
        long = request("long", "loglikelihood_rolling", text=" ".join(["and God said unto the children of Israel"] * 2400))
        short = "".join(request(f"short-{n}", "loglikelihood_rolling", text="and God said") for n in range(6))
        requests = self.write("requests.jsonl", long + short)
        begin = time.monotonic()
        done = self.evaluate(requests, "--layout", "replicas=2", "--row-budget", "1", "--watchdog-seconds", "0.5", ranks=2)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertGreater(time.monotonic() - begin, 7, "too quick to show anything: make the document longer")
        self.assertEqual(set(journal_records(self.folder / "run").values()) & {0}, set())

    def test_generate_takes_any_layout(self):
        texts = set()
        for ranks, layout in [(1, "tensor=1"), (2, "groups=2"), (2, "replicas=2")]:
            done = subprocess.run(command("generate", "--model", SHARDS, "--prompt", "And God said", "--max-tokens", "12", "--layout", layout,
                                          ranks=ranks), env=environment(), capture_output=True, text=True, timeout=240, check=False)
            self.assertEqual(done.returncode, OK, done.stderr)
            texts.add(done.stdout)
        self.assertEqual(len(texts), 1)


if __name__ == "__main__":
    unittest.main()
