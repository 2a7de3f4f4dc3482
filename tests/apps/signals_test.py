#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signals at moments when no step can look at them, and ranks that stop moving. BATHYS_FULL: at the default limit of the watchdog."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from harness import CASES, INTERNAL, OK, PROGRAM, ROOT, SHARDS, STOPPED, Scratch, children_of, command, environment

WORK = CASES / "work_200.jsonl"
FULL = os.environ.get("BATHYS_FULL") == "1"
ASK_FOR_A_STOP = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


def handles(process, what):
    """Whether the process is the program, and has a handler of its own for the signal."""
    if os.readlink(f"/proc/{process}/exe") != os.path.realpath(PROGRAM):
        return False
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"SigCgt:\s*([0-9a-f]+)", status)[1], 16) >> (what - 1) & 1


class Signals(Scratch):
    def start(self, *options, model=("--model", SHARDS), ranks=1, requests=WORK):
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        arguments = ("eval", *model, "--requests", requests, "--out", self.folder / "run", *options)
        return subprocess.Popen(command(*arguments, ranks=ranks), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def wait_for_event(self, process, name):
        while True:
            line = process.stderr.readline()
            self.assertTrue(line, f"ended before event={name}")
            if line.startswith(f"event={name} "):
                return

    def assert_same_as_undisturbed(self):
        self.assertEqual(self.evaluate(WORK, fresh=False).returncode, OK)
        self.assertEqual(self.evaluate(WORK, name="whole").returncode, OK)
        self.assertEqual(self.result_bytes(), self.result_bytes("whole"))

    def test_a_run_that_waits_for_its_requests_can_be_stopped(self):
        fifo = self.folder / "requests.fifo"
        os.mkfifo(fifo)
        for what in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            process = self.start(requests=fifo)
            while "event=start" not in process.stderr.readline():
                self.assertIsNone(process.poll())
            time.sleep(0.5)
            process.send_signal(what)
            text = process.communicate(timeout=20)[1]
            self.assertEqual(process.returncode, STOPPED, text)
            self.assertIn("bathys: error: stopped by a signal while waiting for " + str(fifo), text)

    def test_a_signal_before_the_ranks_know_each_other_stops_the_run(self):
        for ranks in (1, 2):
            for what in ASK_FOR_A_STOP:
                with self.subTest(ranks=ranks, what=what):
                    process = self.start(ranks=ranks)
                    deadline = time.monotonic() + 60
                    met = []
                    while not met:  # as early as it can be met
                        self.assertLess(time.monotonic(), deadline)
                        for one in [process.pid] if ranks == 1 else children_of(process.pid, alive=True):
                            try:
                                met += [one] if handles(one, what) else []
                            except OSError:  # not there yet
                                pass
                    os.kill(met[-1], what)
                    text = process.communicate(timeout=60)[1]
                    self.assertEqual(process.returncode, STOPPED, text)
        self.assert_same_as_undisturbed()

    def test_a_signal_while_the_weights_are_loaded_stops_the_run(self):
        model = ("--synthetic", ROOT / "inputs" / "models" / "mid.json")
        for ranks, what in ((1, signal.SIGTERM), (1, signal.SIGINT), (2, signal.SIGUSR1)):
            with self.subTest(ranks=ranks, what=what):
                process = self.start(model=model, ranks=ranks)
                self.wait_for_event(process, "memory")  # said before any weight is there
                os.kill(process.pid if ranks == 1 else children_of(process.pid, alive=True)[-1], what)
                text = process.communicate(timeout=120)[1]
                self.assertEqual(process.returncode, STOPPED, text)
                self.assertEqual(text.count("bathys: error: stopped by a signal while waiting for the weights"), 1, text)
                self.assertNotIn("event=load ", text)

    def test_a_rank_that_does_not_run_ends_the_job(self):
        # As a replica of its own no other rank waits for it, within a group all do.
        for layout in ("replicas=2", "tensor=2"):
            with self.subTest(layout=layout):
                limit = [] if FULL else ["--watchdog-seconds", "5"]
                process = self.start("--layout", layout, "--row-budget", "1", *limit, ranks=2)
                self.wait_for_event(process, "load")
                time.sleep(0.5)
                began, stopped = time.monotonic(), children_of(process.pid, alive=True)[-1]
                os.kill(stopped, signal.SIGSTOP)
                text = process.communicate(timeout=120)[1]
                self.assertEqual(process.returncode, INTERNAL, text)
                self.assertLess(time.monotonic() - began, 60)
                self.assertEqual(text.count("bathys: error: "), 1, text)
                self.assertRegex(text, r"error: (rank 1 has not run|no progress) for .*rank 1 in .* NOT RUNNING")
                while pathlib.Path(f"/proc/{stopped}").exists():  # reaped in its own time
                    self.assertLess(time.monotonic() - began, 70)
                    time.sleep(0.05)
        self.assert_same_as_undisturbed()


if __name__ == "__main__":
    unittest.main()
