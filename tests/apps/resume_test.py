#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that are stopped, killed, damaged and gone on with: nothing is lost, nothing is done twice, no byte changes. Cases C25 C27 C37 C39. BATHYS_FULL: more kills."""

import collections
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

from harness import (BAD_INPUT, CASES, OK, ROOT, SHARDS, SOME_FAILED, STOPPED, USAGE, Scratch, children_of, command, environment, read_lines, resealed, run)

WORK = CASES / "work_200.jsonl"
FULL = os.environ.get("BATHYS_FULL") == "1"
KILLS = 60 if FULL else 5
LAYOUTS = [(1, "tensor=1"), (2, "replicas=2"), (4, "groups=2,tensor=2"), (2, "groups=2"), (4, "replicas=2,groups=2"), (2, "tensor=2"), (4, "replicas=4"),
           (8, "replicas=2,groups=2,tensor=2"), (4, "tensor=4"), (3, "groups=3")]


def journal_records(folder):
    """Whole record lines in the journals of a run."""
    keys = []
    for path in sorted((folder / "journal").glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            try:
                record = json.loads(line)["record"]
            except (ValueError, KeyError):
                continue
            keys.append((record["custom_id"], record["repeat"]))
    return keys


class Resume(Scratch):
    whole = None  # results.jsonl and summary.json of one undisturbed run, made once

    def setUp(self):
        super().setUp()
        if Resume.whole is None:
            done = self.evaluate(WORK, name="whole")
            self.assertEqual(done.returncode, OK, done.stderr)
            Resume.whole = (self.result_bytes("whole"), self.summary("whole"))

    def start(self, *options, name="run", ranks=1, rows=12, requests=WORK):
        out = self.folder / name
        # Few rows a step: the run is to be met in its middle.
        arguments = ("eval", "--model", SHARDS, "--requests", requests, "--out", out, "--row-budget", rows, *options)
        return subprocess.Popen(command(*arguments, ranks=ranks), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def wait_for_records(self, process, count, name="run"):
        deadline = time.monotonic() + 120
        while len(journal_records(self.folder / name)) < count:
            self.assertIsNone(process.poll(), "ended before it was stopped: " + (process.stderr.read() if process.poll() is not None else ""))
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)

    def stop(self, process, what):
        process.send_signal(what)
        text = process.communicate(timeout=120)[1]
        return process.returncode, text

    def assert_equals_whole(self, name="run"):
        self.assertEqual(self.result_bytes(name), Resume.whole[0])

    def test_a_finished_run_is_shown_again(self):
        first = self.evaluate(CASES / "c20_stops.jsonl")
        again = self.evaluate(CASES / "c20_stops.jsonl", fresh=False)
        self.assertEqual((first.returncode, again.returncode), (OK, OK))
        self.assertIn("11 of 11 done", again.stdout)
        self.assertNotIn("event=load", again.stderr)

    def test_a_result_file_that_was_lost_or_cut_is_written_again(self):
        requests = CASES / "c20_stops.jsonl"
        self.evaluate(requests)
        names = ["results.jsonl", "failed.jsonl", "items.jsonl", "scores.jsonl"]
        whole = {name: (self.folder / "run" / name).read_bytes() for name in names}
        for name in [*names, "summary.json"]:
            for damage in ("lost", "cut"):
                with self.subTest(name=name, damage=damage):
                    path = self.folder / "run" / name
                    if damage == "lost":
                        path.unlink()
                    elif not path.stat().st_size:
                        continue
                    else:
                        os.truncate(path, path.stat().st_size // 2)
                    done = self.evaluate(requests, fresh=False)
                    self.assertEqual(done.returncode, OK, done.stderr)
                    self.assertNotIn("event=load", done.stderr)
                    self.assertEqual({name: (self.folder / "run" / name).read_bytes() for name in names}, whole)
                    self.assertEqual(self.summary()["files"], {name: len(text) for name, text in whole.items()})

    def test_too_many_failures_say_where_the_answers_are(self):
        bad = [json.dumps({"custom_id": f"b{i}", "url": "bathys:loglikelihood", "body": {"context": "a", "continuations": [""]}}) for i in range(300)]
        requests = self.write("requests", "\n".join(bad) + "\n" + WORK.read_text())
        done = self.evaluate(requests, "--max-failed", "0")
        self.assert_refused(done, SOME_FAILED, "more than 0 requests failed", "results.partial.jsonl", "--max-failed")
        self.assertTrue((self.folder / "run" / "results.partial.jsonl").exists())
        self.assert_refused(self.evaluate(requests, fresh=False), SOME_FAILED, "failed.jsonl", "--retry-failed")

    def test_stops_and_a_kill_on_changing_layouts_change_no_byte(self):
        records = 0
        steps = [("tensor=1", 1, signal.SIGTERM), ("replicas=2", 2, signal.SIGUSR1), ("replicas=2,groups=2", 4, signal.SIGKILL),
                 ("groups=2", 2, signal.SIGUSR1)]
        for step, (layout, ranks, what) in enumerate(steps):
            with self.subTest(step):
                process = self.start("--grace-seconds", "0", "--layout", layout, ranks=ranks, rows=5)  # four stops in one run
                self.wait_for_records(process, records + 15)
                if what == signal.SIGKILL:  # one rank, not the launcher
                    os.kill(children_of(process.pid)[-1], signal.SIGKILL)
                    process.communicate(timeout=120)
                    self.assertNotEqual(process.returncode, OK)
                else:
                    code, text = self.stop(process, what)
                    self.assertEqual(code, STOPPED, text)
                    self.assertTrue((self.folder / "run" / "results.partial.jsonl").exists())
                records = len(journal_records(self.folder / "run"))
        done = self.evaluate(WORK, fresh=False)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assert_equals_whole()
        self.assertFalse((self.folder / "run" / "results.partial.jsonl").exists())
        repeated = [key for key, n in collections.Counter(journal_records(self.folder / "run")).items() if n > 1]
        self.assertEqual(repeated, [])
        # C27: totals cover every start.
        summary = self.summary()
        self.assertEqual(summary["counts"], Resume.whole[1]["counts"])
        self.assertEqual(summary["tokens"], Resume.whole[1]["tokens"])
        self.assertEqual(summary["restarts"], len(steps))
        self.assertIn("all starts", summary["speed"]["covers"])
        keys = [(item["custom_id"], item["repeat"]) for item in read_lines(self.folder / "run" / "items.jsonl")]
        self.assertEqual(keys, list(self.results()))

    def kill(self, process, ranks, chance):
        """SIGKILL to one rank or to all, or to the only process."""
        victims = children_of(process.pid) if ranks > 1 else [process.pid]
        for victim in victims if chance.random() < 0.3 else [chance.choice(victims or [process.pid])]:
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:  # it had ended
                pass
        try:
            text = process.communicate(timeout=20)[1]
        except subprocess.TimeoutExpired:
            # Open MPI's launcher may wait for ever when a rank dies while it is being started; ours must all be gone.
            self.assertEqual(children_of(process.pid, alive=True), [])
            process.kill()
            text = process.communicate(timeout=60)[1]
        return process.returncode, text

    def assert_whole_and_nothing_twice(self, name):
        self.assertEqual(self.result_bytes(name), self.result_bytes("undisturbed"))
        repeated = [key for key, n in collections.Counter(journal_records(self.folder / name)).items() if n > 1]
        self.assertEqual(repeated, [])
        self.assertEqual(self.summary(name)["counts"], self.summary("undisturbed")["counts"])

    def test_kills_at_random_moments_with_changing_ranks_and_layouts_change_no_byte(self):
        seed = int.from_bytes(os.urandom(4), "big")
        chance = random.Random(seed)
        begun, kills, folder, here, met = time.monotonic(), 0, 0, 0, set()
        order = itertools.cycle(LAYOUTS)
        copies = [line.replace('"custom_id": "', f'"custom_id": "{n}-', 1) for n in range(12 if FULL else 2) for line in WORK.read_text().splitlines()]
        requests = self.write("requests.jsonl", "\n".join(copies) + "\n")
        self.assertEqual(self.evaluate(requests, name="undisturbed").returncode, OK)
        while here < KILLS:  # one and the same run is to meet them all; one that is done before is looked at, and another begun
            self.assertLess(folder, 5)
            name, (ranks, layout) = f"killed-{folder}", next(order)
            written = lambda: sum(path.stat().st_size for path in (self.folder / name / "journal").glob("*.jsonl"))
            known = written()
            process = self.start("--layout", layout, name=name, ranks=ranks, rows=4, requests=requests)
            # While it starts and loads, or some answers later.
            if chance.random() < 0.5:
                time.sleep(chance.uniform(0, 1.2))
            else:
                wanted, deadline = known + chance.randint(500, 3000), time.monotonic() + 120
                while process.poll() is None and written() < wanted:
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.002)
                time.sleep(chance.uniform(0, 0.01))
            ended = process.poll() is not None
            code, text = self.kill(process, ranks, chance)
            if code == OK:  # it was done before: another folder
                self.assert_whole_and_nothing_twice(name)
                folder, here = folder + 1, 0
                continue
            self.assertFalse(ended, f"seed {seed}, kill {kills}, {layout}: ended by itself with {code}: {text}")
            kills, here = kills + 1, here + 1
            met.add(layout)
        last = f"killed-{folder}"
        done = self.evaluate(requests, name=last, fresh=False)
        self.assertEqual(done.returncode, OK, f"seed {seed}: {done.stderr}")
        self.assert_whole_and_nothing_twice(last)
        print(f"{kills} kills, {here} of them of one run, {len(met)} layouts of 1 to 8 ranks, {time.monotonic() - begun:.0f} s", file=sys.stderr)

    def test_zeros_and_torn_lines_are_counted_and_done_again(self):
        process = self.start("--grace-seconds", "0")
        self.wait_for_records(process, 60)
        process.kill()
        process.communicate(timeout=60)
        journal = next((self.folder / "run" / "journal").glob("*.jsonl"))
        subprocess.run([sys.executable, ROOT / "tests" / "cases" / "gen.py", "nul", journal], check=True)
        (journal.parent / "000002-000000.jsonl").write_bytes(b"")
        (journal.parent / "000003-000000.jsonl").write_bytes(bytes(4096))
        survivors = set(journal_records(self.folder / "run"))
        done = self.evaluate(WORK, fresh=False, ranks=2)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertRegex(done.stderr, r"damaged_lines=[34]\b")
        self.assert_equals_whole()
        again = collections.Counter(journal_records(self.folder / "run"))
        self.assertTrue(all(again[key] == 1 for key in survivors))

    def test_a_time_limit_stops_and_the_same_command_goes_on(self):
        done = self.evaluate(WORK, "--row-budget", "4", "--max-seconds", "0.5", "--grace-seconds", "0")
        self.assertEqual(done.returncode, STOPPED, done.stderr)
        self.assertEqual(json.loads((self.folder / "run" / "status.json").read_text())["state"], "cancelled")
        self.assertEqual(self.evaluate(WORK, fresh=False).returncode, OK)
        self.assert_equals_whole()

    def test_a_file_size_limit_stops_and_the_rerun_is_equal(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        done = self.evaluate(WORK, preexec_fn=limit)
        self.assertEqual(done.returncode, STOPPED, done.stderr)
        self.assertEqual(done.stderr.count("bathys: error: "), 1)
        self.assertEqual(self.evaluate(WORK, fresh=False).returncode, OK)
        self.assert_equals_whole()

    def test_a_change_that_would_mix_answers_is_refused_by_name(self):
        requests = CASES / "c20_stops.jsonl"
        self.assertEqual(self.evaluate(requests).returncode, OK)
        before = self.result_bytes()
        for options, word in [(("--seed", "7"), "seed"), (("--max-length", "100"), "max_length"), (("--prefix-token", "1"), "prefix_token")]:
            self.assert_refused(self.evaluate(requests, *options, fresh=False), USAGE, word)
        self.assert_refused(self.evaluate(CASES / "c17_one_item.jsonl", fresh=False), USAGE, "requests_sha256")
        self.assertEqual(self.result_bytes(), before)

    def test_answers_that_contradict_each_other_are_refused(self):
        requests = CASES / "c20_stops.jsonl"
        self.assertEqual(self.evaluate(requests).returncode, OK)
        journal = next((self.folder / "run" / "journal").glob("*.jsonl"))
        changed = journal.read_text().replace('"stop":"the"', '"stop":"teh"')
        (journal.parent / "000002-000000.jsonl").write_text(resealed(changed, self.folder / "run"))
        self.assert_refused(self.evaluate(requests, fresh=False), BAD_INPUT, "order", "000002-000000.jsonl")

    def test_a_journal_of_another_run_answers_nothing(self):
        self.assertEqual(self.evaluate(WORK).returncode, OK)
        before = self.result_bytes()
        for options in (("--seed", "7"), ("--prefix-token", "5"), ("--max-length", "60")):
            self.assertEqual(self.evaluate(WORK, *options, name="other").returncode, OK)
            self.assertNotEqual(self.result_bytes("other"), before)
            run = self.folder / "run"
            shutil.rmtree(run / "journal")
            (run / "summary.json").unlink()
            shutil.copytree(self.folder / "other" / "journal", run / "journal")
            done = self.evaluate(WORK, fresh=False)
            self.assertEqual(done.returncode, OK, done.stderr)
            self.assertIn(" on_record=0 ", done.stderr)
            self.assertIn("or of another run", done.stderr)
            self.assertEqual(self.result_bytes(), before)

    def test_ranks_that_wait_while_the_first_reads_and_merges_are_not_taken_for_stuck(self):
        # Answers that need no model, so many that one rank reads them for longer than the watchdog waits.
        body = {"context": "a", "repeats": 1000, "max_gen_toks": 10, "max_length": 10}
        line = lambda n: json.dumps({"custom_id": f"{n}-" + 300 * "x", "url": "bathys:generate_until", "body": body})
        requests = self.write("requests", "\n".join(map(line, range(100))) + "\n")
        done = self.evaluate(requests, ranks=2)
        self.assertEqual(done.returncode, SOME_FAILED, done.stderr)
        before = self.result_bytes()
        again = self.evaluate(requests, "--watchdog-seconds", "0.05", fresh=False, ranks=2)
        self.assertEqual(again.returncode, SOME_FAILED, again.stderr)
        self.assertNotIn("no progress", again.stderr)
        self.assertEqual(self.result_bytes(), before)

    def test_a_folder_in_use_is_refused(self):
        process = self.start()
        self.wait_for_records(process, 1)
        try:
            self.assert_refused(self.evaluate(WORK, fresh=False), USAGE, "in use by process")
        finally:
            process.kill()
            process.communicate()

    def test_failed_answers_are_final_until_asked_for_again(self):
        text = CASES.joinpath("c17_one_item.jsonl").read_text()
        bad = {"custom_id": "bad", "url": "bathys:generate_until", "body": {"context": "a", "max_gen_toks": 10, "max_length": 10}}
        requests = self.write("requests", text + json.dumps(bad) + "\n")
        self.assertEqual(self.evaluate(requests).returncode, SOME_FAILED)
        self.assertEqual(self.evaluate(requests, fresh=False).returncode, SOME_FAILED)
        self.assertEqual(len(journal_records(self.folder / "run")), 2)
        self.assertEqual(self.evaluate(requests, "--retry-failed", fresh=False).returncode, SOME_FAILED)
        self.assertEqual(journal_records(self.folder / "run").count(("bad", 0)), 2)
        self.assertEqual(self.results()["bad", 0]["error"]["code"], "context_length_exceeded")

    def test_input_that_can_be_read_once_gives_the_same_results(self):
        data = WORK.read_bytes()
        fifo = self.folder / "requests.fifo"
        os.mkfifo(fifo)
        writer = subprocess.Popen(["sh", "-c", 'cat "$0" > "$1"', str(WORK), str(fifo)])
        done = self.evaluate(fifo, name="fifo")
        writer.wait(timeout=30)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assert_equals_whole("fifo")
        # Through mpirun, and with more than any pipe holds.
        long_line = CASES.joinpath("c13_long_line_1_request.jsonl").read_bytes()
        out = self.folder / "stdin"
        for _ in range(3):
            piped = subprocess.run(command("eval", "--model", SHARDS, "--requests", "/dev/stdin", "--out", out, ranks=2), input=long_line + data,
                                   env=environment(), capture_output=True, timeout=240, check=False)
            # Open MPI 4 forwards standard input with a race in which mpirun itself, not a rank, now and then dies (its issue 7483).
            if not (piped.returncode == -signal.SIGSEGV and b"orte_iof_hnp_read_local_handler" in piped.stderr):
                break
        self.assertEqual(piped.returncode, OK, piped.stderr)
        self.assertEqual((out / "results.jsonl").read_bytes().split(b"\n", 1)[1], Resume.whole[0])

    def test_closed_output_does_not_reach_any_file(self):
        requests = CASES / "c20_stops.jsonl"
        self.evaluate(requests, name="plain")
        out = self.folder / "closed"
        script = 'exec "$0" eval --model "$1" --requests "$2" --out "$3" >&- 2>&-'
        done = subprocess.run(["sh", "-c", script, command()[0], SHARDS, str(requests), str(out)], env=environment(), timeout=240, check=False)
        self.assertEqual(done.returncode, OK)
        self.assertEqual(self.result_bytes("closed"), self.result_bytes("plain"))
        for journal in (out / "journal").glob("*.jsonl"):
            for line in journal.read_text().splitlines():
                json.loads(line)


if __name__ == "__main__":
    unittest.main()
