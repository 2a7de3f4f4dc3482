# SPDX-License-Identifier: Apache-2.0
"""What the tests of the program share. CTest sets BATHYS (the program), BATHYS_SHARDS (nano converted) and BATHYS_ROOT (the checkout)."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = os.environ["BATHYS"]
SHARDS = os.environ["BATHYS_SHARDS"]
ROOT = pathlib.Path(os.environ["BATHYS_ROOT"])
CASES = ROOT / "tests" / "cases" / "files"
REQUESTS = ROOT / "inputs" / "requests"

OK, USAGE, BAD_REQUESTS, BAD_INPUT, INTERNAL, STOPPED, SOME_FAILED = 0, 2, 65, 66, 70, 75, 76


def environment(**changes):
    """This process's environment with one thread a rank and without another launcher's variables; None removes a name."""
    names = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PMI", "OMPI_COMM_"))}
    names.update(OMP_NUM_THREADS="1", OMP_PROC_BIND="false", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                 OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none", OMPI_MCA_mpi_yield_when_idle="1")
    for key, value in changes.items():
        names.pop(key, None)
        if value is not None:
            names[key] = value
    return names


def command(*arguments, ranks=1):
    launcher = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    return [*launcher, PROGRAM, *map(str, arguments)]


def run(*arguments, ranks=1, timeout=240, env=None, **options):
    """Runs the program to its end; stdout and stderr are text unless given."""
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    return subprocess.run(command(*arguments, ranks=ranks), env=env or environment(), text=True, timeout=timeout, **options)


def children_of(parent, alive=False):
    """Ids of the processes that `parent` started, ascending; `alive`: without those that have ended and wait to be asked."""
    children = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:  # gone by now
            continue
        if int(fields[1]) == parent and not (alive and fields[0] == "Z"):
            children.append(int(stat.parent.name))
    return sorted(children)


def read_lines(path):
    with open(path, encoding="utf-8", newline="\n") as lines:
        return [json.loads(line) for line in lines.read().split("\n") if line]


def resealed(journal, run):
    """The text of a journal of the folder `run` whose lines were changed, with the hashes that they end with made new."""
    digest = lambda text: hashlib.sha256(text.encode()).hexdigest()
    identity = json.loads((run / "manifest.json").read_text(encoding="utf-8"))["identity"]
    name = digest("".join(f"{key}={value}\n" for key, value in identity.items() if key != "share"))
    seal = lambda line: f'{line[1]},"sha256":"{digest(name + line[1])}"}}'
    return re.sub(r'^(.*),"sha256":"[0-9a-f]{64}"}$', seal, journal, flags=re.M)


class Scratch(unittest.TestCase):
    """A test with a scratch folder, removed afterwards."""

    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bathys-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def evaluate(self, requests, *options, name="run", fresh=True, **how):
        """Runs eval into the folder `name`."""
        out = self.folder / name
        if fresh:
            shutil.rmtree(out, ignore_errors=True)
        return run("eval", "--model", SHARDS, "--requests", requests, "--out", out, *options, **how)

    def results(self, name="run"):
        return {(r["custom_id"], r["repeat"]): r for r in read_lines(self.folder / name / "results.jsonl")}

    def result_bytes(self, name="run"):
        return (self.folder / name / "results.jsonl").read_bytes()

    def summary(self, name="run"):
        return json.loads((self.folder / name / "summary.json").read_text(encoding="utf-8"))

    def write(self, name, text):
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def assert_refused(self, done, code, *words):
        """One cause line with these words and the exit code; nothing of a traceback or a crash."""
        causes = [line for line in done.stderr.splitlines() if line.startswith("bathys: error: ")]
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(len(causes), 1, done.stderr)
        for word in words:
            self.assertIn(word, causes[0])
