#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Command lines, environments and outputs as they occur: exit codes, suggestions, foreign variables, full devices. Cases C29 C31 C37 C39."""

import os
import resource
import shutil
import subprocess
import unittest

from harness import BAD_INPUT, CASES, OK, PROGRAM, ROOT, SHARDS, STOPPED, USAGE, Scratch, environment, run

ONE = CASES / "c17_one_item.jsonl"


class Usage(Scratch):
    def test_an_unknown_flag_is_named_with_the_nearest_one(self):
        self.assert_refused(run("eval", "--modle", SHARDS), USAGE, "--modle", "did you mean --model?")
        self.assert_refused(run("eval", "--model", SHARDS, "--requests", ONE, "--out", self.folder, "--row_budget=3"), USAGE,
                            "--row_budget", "did you mean --row-budget?")
        self.assert_refused(run("evl"), USAGE, "evl", "did you mean eval?")

    def test_missing_and_impossible_values_are_usage_errors(self):
        self.assert_refused(run(), USAGE)
        self.assert_refused(run("eval", "--model", SHARDS), USAGE, "--requests")
        self.assert_refused(self.evaluate(ONE, "--row-budget", "0"), USAGE, "--row-budget")
        self.assert_refused(self.evaluate(ONE, "--reductions", "fast"), USAGE, "--reductions fast")
        self.assert_refused(self.evaluate(ONE, "--layout", "replicas=1,groups=1,tensor=3"), USAGE)
        self.assert_refused(self.evaluate(ONE, "--prefix-token", "999999"), USAGE, "--prefix-token")

    def test_a_value_that_is_no_number_in_range_is_told_with_what_is_wanted(self):
        for arguments, option, wanted in [
            (("eval", "--row-budget", "1e3"), "--row-budget: is 1e3", "a whole number from 1 to 16777216 is wanted"),
            (("eval", "--threads", "0"), "--threads: is 0", "a whole number from 1 to"),
            (("eval", "--max-failed", "-1"), "--max-failed: is -1", "a whole number from 0 on is wanted"),
            (("eval", "--seed", "9223372036854775808"), "--seed", "a whole number from 0 on is wanted"),
            (("eval", "--memory", "nan"), "--memory: is nan", "a number from 0 to 1073741824 is wanted"),
            (("eval", "--memory", "1e20"), "--memory: is 1e20", "a number from 0 to 1073741824 is wanted"),
            (("generate", "--temperature", "1e999"), "--temperature: is 1e999", "a number from 0 on is wanted"),
            (("bench", "linear", "--rows", "1,b"), "--rows: is b", "a whole number from 1"),
        ]:
            with self.subTest(arguments=arguments):
                self.assert_refused(run(*arguments), USAGE, option, wanted)

    def test_the_ranks_speak_once(self):
        done = run("eval", "--bogus", ranks=2)
        self.assert_refused(done, USAGE, "--bogus")
        done = self.evaluate(ONE, "--layout", "tensor=3", ranks=2)
        self.assert_refused(done, USAGE)

    def test_a_rank_count_that_cannot_share_the_model_is_refused(self):
        self.assert_refused(self.evaluate(ONE, ranks=3), USAGE)

    def test_missing_inputs_are_named(self):
        self.assert_refused(run("inspect", "/nowhere"), BAD_INPUT, "/nowhere")
        self.assert_refused(run("eval", "--model", "/nowhere", "--requests", ONE, "--out", self.folder / "o"), BAD_INPUT, "/nowhere")
        self.assert_refused(self.evaluate("/nowhere.jsonl"), BAD_INPUT, "/nowhere.jsonl")
        self.assert_refused(self.evaluate(self.folder), BAD_INPUT, str(self.folder))

    def test_an_output_folder_that_cannot_be_is_refused(self):
        blocker = self.write("file", "x")
        done = run("eval", "--model", SHARDS, "--requests", ONE, "--out", blocker / "below")
        self.assert_refused(done, USAGE, "below")

    def test_nonsense_in_omp_num_threads_is_ignored_with_a_warning(self):
        for value in ("0", "abc", "70000", "99999999999"):
            with self.subTest(value=value):
                done = run("generate", "--model", SHARDS, "--prompt", "In", "--max-tokens", "1", "--threads", "1",
                           env=environment(OMP_NUM_THREADS=value))
                self.assertEqual(done.returncode, OK, done.stderr)
                self.assertIn(f'text="OMP_NUM_THREADS=\\"{value}\\" is no whole number', done.stderr)

    def test_help_and_version_need_nothing(self):
        for arguments in (["--help"], ["eval", "--help"], ["version"]):
            done = run(*arguments)
            self.assertEqual((done.returncode, done.stderr), (OK, ""))
            self.assertIn("bathys", done.stdout)


class Shards(Scratch):
    def test_a_truncated_shard_stops_all_ranks_with_one_line(self):
        shards = self.folder / "shards"
        shutil.copytree(SHARDS, shards)
        shard = max(shards.glob("*.h5"), key=lambda path: path.stat().st_size if path.name != "index.h5" else 0)
        os.truncate(shard, shard.stat().st_size - 5000)
        for ranks in (1, 2):
            done = run("eval", "--model", shards, "--requests", ONE, "--out", self.folder / "run", ranks=ranks)
            self.assert_refused(done, BAD_INPUT, shard.name)
        self.assert_refused(run("verify", shards), BAD_INPUT, shard.name)

    def test_a_conversion_that_ran_out_of_room_goes_on(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        arguments = ("convert", ROOT / "inputs" / "models" / "nano", self.folder / "shards")
        self.assert_refused(run(*arguments, preexec_fn=limit), STOPPED)
        self.assert_refused(run("inspect", self.folder / "shards"), BAD_INPUT)
        self.assertEqual(run(*arguments).returncode, OK)
        self.assertEqual(run("verify", self.folder / "shards").returncode, OK)


class ForeignVariables(Scratch):
    """Variables of somebody else's job are not a launch."""

    allocations = [
        dict(SLURM_JOB_ID="1", SLURM_NTASKS="4", SLURM_NNODES="2", SLURM_PROCID="0", SLURM_LOCALID="0"),
        dict(SLURM_JOB_ID="1", SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="1"),
        dict(SLURM_JOB_ID="1"),
        dict(SLURM_JOB_ID="1", SLURM_NTASKS=""),
        dict(SLURM_JOB_ID="1", SLURM_NTASKS="4(x2)"),
        dict(SLURM_JOB_ID="1", SLURM_NTASKS="abc"),
        dict(OMPI_COMM_WORLD_SIZE="4", OMPI_COMM_WORLD_RANK="2"),
        dict(PMI_RANK="1", PMI_SIZE="4"),
    ]

    def test_commands_of_one_process_run(self):
        step = dict(SLURM_JOB_ID="1", SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="4")
        for variables in self.allocations + [step]:
            with self.subTest(variables):
                env = environment(**variables)
                self.assertEqual(run("inspect", SHARDS, env=env, timeout=20).returncode, OK)
                flags = ["--single-process"] if variables is step else []
                self.assertEqual(run("verify", SHARDS, *flags, env=env, timeout=20).returncode, OK)
                text = run("tokenize", "--model", SHARDS, "--json", env=env, timeout=20, input='"And God said"\n')
                self.assertEqual(text.returncode, OK)

    def test_eval_runs_as_one_rank(self):
        for variables in self.allocations:
            with self.subTest(variables):
                done = self.evaluate(ONE, env=environment(**variables), timeout=60)
                self.assertEqual(done.returncode, OK, done.stderr)
                self.assertIn("ranks=1 ", done.stderr)

    def test_a_step_of_four_that_do_not_find_each_other_is_refused(self):
        env = environment(SLURM_JOB_ID="1", SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="0")
        self.assert_refused(self.evaluate(ONE, env=env, timeout=10), USAGE, "--mpi=pmix", "--single-process")
        done = self.evaluate(ONE, "--single-process", env=env, timeout=60)
        self.assertEqual(done.returncode, OK, done.stderr)

    def test_threads_follow_what_the_process_was_given(self):
        core = min(os.sched_getaffinity(0))
        pin = lambda: os.sched_setaffinity(0, {core})
        done = self.evaluate(ONE, env=environment(OMP_NUM_THREADS=None), preexec_fn=pin)
        self.assertIn(" threads=1 ", done.stderr)
        done = self.evaluate(ONE, env=environment(OMP_NUM_THREADS=None, SLURM_CPUS_PER_TASK="1"))
        self.assertIn(" threads=1 ", done.stderr)
        done = self.evaluate(ONE, "--threads", "2", env=environment(OMP_NUM_THREADS=None), preexec_fn=pin)
        self.assertIn(" threads=2 ", done.stderr)
        self.assertIn("level=warn", done.stderr)


class Outputs(Scratch):
    def test_a_full_device_is_an_error(self):
        long_text = ("And God said " * 800_000).encode()
        for text in (b"And God", long_text):
            path = self.write("text", text)
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = run("tokenize", "--model", SHARDS, path, stdout=full)
            self.assert_refused(done, STOPPED, "standard output")
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.assert_refused(run("inspect", SHARDS, "--json", stdout=full), STOPPED, "standard output")

    def test_a_reader_that_went_away_ends_the_program_quietly(self):
        done = subprocess.run(f"'{PROGRAM}' inspect '{SHARDS}' --json | head -1", shell=True, executable="/bin/bash", env=environment(),
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.stderr, "")

    def test_tokenize_reads_a_pipe(self):
        done = run("tokenize", "--model", SHARDS, "--json", input='"In the beginning"\n')
        self.assertEqual(done.returncode, OK, done.stderr)
        back = run("tokenize", "--model", SHARDS, "--json", "--decode", input=done.stdout)
        self.assertEqual(back.stdout, '"In the beginning"\n')

    def test_a_chat_without_thinking_has_the_known_prompt(self):
        line = '{"messages":[{"role":"user","content":"And God said"}],"thinking":{"type":"disabled"}}\n'
        done = run("tokenize", "--model", SHARDS, "--chat", "--decode", input=line)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(done.stdout, '"<｜begin▁of▁sentence｜><｜User｜>And God said<｜Assistant｜></think>"\n')

    def test_generate_continues_a_prompt_on_any_number_of_ranks(self):
        texts = {run("generate", "--model", SHARDS, "--prompt", "In the beginning God", "--max-tokens", "9", ranks=n).stdout for n in (1, 2)}
        self.assertEqual(texts, {", and the Spirit of God,\n"})


if __name__ == "__main__":
    unittest.main()
