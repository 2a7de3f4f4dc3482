#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""convert, verify and synth as users run them: any number of ranks, kills at any time, disks that are full. BATHYS_FULL: more kills."""

import filecmp
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time
import unittest

from harness import BAD_INPUT, OK, PROGRAM, ROOT, SHARDS, STOPPED, USAGE, Scratch, command, environment, run

NANO = ROOT / "inputs" / "models" / "nano"
FULL = bool(os.environ.get("BATHYS_FULL"))


class Conversions(Scratch):
    def assert_same_shards(self, folder):
        names = sorted(path.name for path in pathlib.Path(SHARDS).glob("*.h5"))
        self.assertEqual(sorted(path.name for path in folder.glob("*.h5")), names)
        self.assertEqual(filecmp.cmpfiles(SHARDS, folder, names, shallow=False)[1:], ([], []))
        self.assertEqual(list(folder.glob("*.partial*")), [])


class Ranks(Conversions):
    def test_any_number_of_ranks_writes_the_same_bytes(self):
        for ranks in (2, 4):
            folder = self.folder / str(ranks)
            done = run("convert", NANO, folder, ranks=ranks)
            self.assertEqual(done.returncode, OK, done.stderr)
            self.assert_same_shards(folder)
            done = run("verify", folder, "--checkpoint", NANO, ranks=ranks)
            self.assertEqual(done.returncode, OK, done.stderr)
            self.assertIn("rate_gib_s=", done.stderr)

    def test_a_byte_that_one_rank_finds_damaged_stops_all(self):
        folder = self.folder / "shards"
        shutil.copytree(SHARDS, folder)
        datasets = json.loads(run("inspect", folder, "--json").stdout)["datasets"]
        at = next(dataset["offset"] for dataset in datasets if dataset["name"] == "layers.5.ffn.experts.w1.weight")
        victim = folder / "layer_05.h5"
        data = bytearray(victim.read_bytes())
        data[at + 99] ^= 1
        victim.write_bytes(data)
        for ranks in (1, 4):
            self.assert_refused(run("verify", folder, ranks=ranks, timeout=60), BAD_INPUT, "layer_05.h5: layers.5.ffn.experts.w1.weight: bytes 0 to")
            self.assert_refused(run("convert", folder, self.folder / f"back{ranks}", "--to", "safetensors", ranks=ranks, timeout=60),
                                BAD_INPUT, "layer_05.h5: layers.5.ffn.experts.w1.weight: bytes 0 to")

    def test_folders_of_the_other_kind_are_named(self):
        self.assert_refused(run("convert", SHARDS, self.folder / "a"), BAD_INPUT, "--to safetensors")
        self.assert_refused(run("convert", NANO, self.folder / "a", "--to", "safetensors"), BAD_INPUT, "index.h5")
        self.assert_refused(run("convert", NANO, ""), USAGE, "empty name")


class Kills(Conversions):
    """Whatever the moment: nothing that verify takes for a model unless it is whole, and the same bytes in the end."""

    def kill_one(self, process, delay):
        """SIGKILL to the program after `delay`, under mpirun to one of its ranks. Returns whether it was still running."""
        time.sleep(delay)
        victims = [process.pid]
        if process.args[0] == "mpirun":
            listed = subprocess.run(["ps", "--ppid", str(process.pid), "-o", "pid="], capture_output=True, text=True, check=False)
            victims = [int(pid) for pid in listed.stdout.split()]
        if victims and process.poll() is None:
            try:
                os.kill(random.choice(victims), signal.SIGKILL)
            except ProcessLookupError:
                pass
        return process.wait(timeout=60) != 0

    def kill_loop(self, ranks_of, rounds, whole, arguments):
        folder = self.folder / "shards"
        random.seed(rounds)
        killed = finished = 0
        started = time.monotonic()
        run(*arguments, self.folder / "timed", ranks=ranks_of(0))
        lasts = time.monotonic() - started
        for number in range(rounds):
            process = subprocess.Popen(command(*arguments, folder, ranks=ranks_of(number)), env=environment(), stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            killed += self.kill_one(process, random.uniform(0, lasts))
            if (folder / "index.h5").exists():
                self.assertEqual(run("verify", folder).returncode, OK)
                finished += 1
                if number + 1 < rounds:
                    shutil.rmtree(folder)
            elif folder.exists():
                self.assert_refused(run("verify", folder), BAD_INPUT, "index.h5")
        self.assertGreater(killed, rounds // 4, f"{finished} conversions of {rounds} ended before the kill")
        done = run(*arguments, folder, ranks=ranks_of(1))
        self.assertEqual(done.returncode, OK, done.stderr)
        whole(folder)

    def test_one_process_killed_at_any_time(self):
        self.kill_loop(lambda number: 1, 100 if FULL else 12, self.assert_same_shards, ("convert", NANO))

    def test_a_rank_of_several_killed_at_any_time(self):
        self.kill_loop(lambda number: (4, 2, 1)[number % 3], 60 if FULL else 5, self.assert_same_shards, ("convert", NANO))

    def test_files_of_many_pieces_killed_at_any_time(self):
        if not FULL:
            return  # half a gigabyte each time
        arguments = ("synth", ROOT / "inputs" / "models" / "mid.json")
        self.assertEqual(run(*arguments, self.folder / "whole", ranks=2).returncode, OK)

        def whole(folder):
            names = sorted(path.name for path in (self.folder / "whole").glob("*.h5"))
            self.assertEqual(filecmp.cmpfiles(self.folder / "whole", folder, names, shallow=False)[1:], ([], []))

        self.kill_loop(lambda number: 1 + number % 2, 25, whole, arguments)

    def test_a_signal_stops_all_ranks_and_the_same_command_goes_on(self):
        folder = self.folder / "shards"
        for _ in range(20):
            process = subprocess.Popen(command("synth", ROOT / "inputs" / "models" / "mid.json", folder, ranks=2), env=environment(),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            while not folder.exists() and process.poll() is None:
                time.sleep(0.02)
            process.send_signal(signal.SIGUSR1)  # mpirun passes it on to its ranks
            _, errors = process.communicate(timeout=60)
            if process.returncode == STOPPED:
                self.assertIn("run the same command again", errors)
                self.assertFalse((folder / "index.h5").exists())
                return
            shutil.rmtree(folder, ignore_errors=True)
        self.fail("no signal came before the end")


class FullDisks(Conversions):
    """A file system of its own that is too small: a user and mount namespace needs no root."""

    def in_small_disk(self, script):
        """Runs a shell script in a namespace where $SMALL is a file system of 2 MB."""
        small = self.folder / "small"
        small.mkdir()
        whole = f"mount -t tmpfs -o size=2m tmpfs '{small}' && cd '{self.folder}' && {script}"
        unshare = ["unshare", "--mount", "--map-root-user", "--user"] if os.getuid() != 0 else ["unshare", "--mount"]
        return subprocess.run([*unshare, "bash", "-c", whole], env=environment(SMALL=str(small)), capture_output=True, text=True,
                              timeout=120, check=False)

    def can_mount(self):
        return subprocess.run(["unshare", "--mount", "bash", "-c", f"mount -t tmpfs tmpfs '{self.folder}'"], capture_output=True,
                              check=False).returncode == 0

    def test_a_full_disk_ends_in_75_and_room_lets_it_go_on(self):
        if not self.can_mount():
            self.skipTest("no file system can be mounted here; the file-size limit of command_line_test.py stands in")
        script = (f"'{PROGRAM}' convert '{NANO}' \"$SMALL/out\"; code=$?; ls \"$SMALL/out\"; "
                  f"mount -o remount,size=64m tmpfs \"$SMALL\" && '{PROGRAM}' convert '{NANO}' \"$SMALL/out\" && "
                  "cp -r \"$SMALL/out\" copied && exit $code")
        done = self.in_small_disk(script)
        self.assertEqual(done.returncode, STOPPED, done.stderr)
        causes = [line for line in done.stderr.splitlines() if line.startswith("bathys: error: ")]
        self.assertEqual(len(causes), 1, done.stderr)
        self.assertIn("No space left", causes[0])
        self.assertNotIn("index.h5", done.stdout)
        self.assert_same_shards(self.folder / "copied")

    def test_ranks_stop_together_when_the_disk_is_full(self):
        if not self.can_mount():
            self.skipTest("no file system can be mounted here; the file-size limit of command_line_test.py stands in")
        done = self.in_small_disk(f"mpirun -n 3 '{PROGRAM}' convert '{NANO}' \"$SMALL/out\"; code=$?; ls \"$SMALL/out\"; exit $code")
        self.assertEqual(done.returncode, STOPPED, done.stderr)
        self.assertNotIn("index.h5", done.stdout)


if __name__ == "__main__":
    unittest.main()
