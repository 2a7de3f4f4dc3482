# SPDX-License-Identifier: Apache-2.0
"""The self-test of a checker of files: faults are planted in a scratch tree, each must be found, the rest must be clean."""

import pathlib
import sys
import tempfile


def self_test(planted, check_tree, below=""):
    """`planted`: file -> (text or bytes, words of the one problem that must be found; None: clean), laid into the folder `below`.
    `check_tree(root)` gives (problems, number of files). Returns what is wrong and the number of files."""
    with tempfile.TemporaryDirectory() as scratch:
        for name, (data, _) in planted.items():
            path = pathlib.Path(scratch) / below / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
        problems, _ = check_tree(scratch)
    wrong = []
    for name, (_, words) in planted.items():
        found = [p for p in problems if f"/{name}:" in p]
        if (words is None) != (not found) or (words and (len(found) != 1 or words not in found[0])):
            wrong.append(f"{name}: expected {words!r}, found {found}")
    return wrong, len(planted)


def main(usage, planted, check_tree, below=""):
    """The command line of such a checker: CHECKER ROOT | --self-test."""
    if len(sys.argv) != 2:
        sys.exit(usage)
    problems, n_files = self_test(planted, check_tree, below) if sys.argv[1] == "--self-test" else check_tree(sys.argv[1])
    for problem in problems:
        print(problem)
    print(f"{n_files} files, {len(problems)} problems")
    sys.exit(1 if problems else 0)
