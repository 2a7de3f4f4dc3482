#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks every JSON and JSONL file below a folder of inputs, without the program.

  check_inputs.py INPUTS_DIR      one line per problem
  check_inputs.py --self-test     plants faults and expects each to be found

All files: UTF-8 without a byte order mark, a newline at the end, no key twice, no NaN or Infinity.  Request files (lines with
a `url`): unique `custom_id` of 1..512 bytes, `url` known, `body` an object.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import planted  # noqa: E402  (found by the line above)

URLS = {
    "bathys:loglikelihood",
    "bathys:loglikelihood_rolling",
    "bathys:generate_until",
    "/v1/completions",
    "/v1/chat/completions",
}


def refuse_twice(pairs):
    keys = [key for key, _ in pairs]
    twice = {key for key in keys if keys.count(key) > 1}
    if twice:
        raise ValueError(f"key twice: {', '.join(sorted(twice))}")
    return dict(pairs)


def refuse_constant(word):
    raise ValueError(f"{word} is not JSON")


def parse(text):
    return json.loads(text, object_pairs_hook=refuse_twice, parse_constant=refuse_constant)


def check_request(line, seen):
    """What a line of a request file must have; None when it does."""
    unknown = set(line) - {"custom_id", "method", "url", "body", "meta"}
    custom_id = line.get("custom_id")
    if unknown:
        return f"unknown field {sorted(unknown)[0]}"
    if not isinstance(custom_id, str) or not 1 <= len(custom_id.encode()) <= 512:
        return "custom_id is not a string of 1..512 bytes"
    if custom_id in seen:
        return f"custom_id {custom_id} twice"
    seen.add(custom_id)
    if line["url"] not in URLS:
        return f"url {line['url']} is unknown"
    if line.get("method", "POST") != "POST" or not isinstance(line.get("body"), dict):
        return "method is not POST or body not an object"
    return None


def check_lines(text):
    seen = set()
    for number, raw in enumerate(text.split("\n")[:-1], 1):
        try:
            line = parse(raw)
        except ValueError as error:
            return f"line {number}: {error}"
        if not isinstance(line, dict):
            return f"line {number}: not an object"
        problem = check_request(line, seen) if "url" in line or "custom_id" in line else None
        if problem:
            return f"line {number}: {problem}"
    return None


def check_file(path):
    data = path.read_bytes()
    if not data.endswith(b"\n") and path.suffix == ".jsonl":
        return "no newline at the end"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return str(error)
    if text.startswith("\ufeff"):
        return "starts with a byte order mark"
    if path.suffix == ".jsonl":
        return check_lines(text)
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return None


def check_tree(root):
    files = sorted(p for p in pathlib.Path(root).rglob("*") if p.suffix in {".json", ".jsonl"})
    if not files:
        return [f"{root}: no JSON file found"], 0
    problems = ((path, check_file(path)) for path in files)
    return [f"{path}: {problem}" for path, problem in problems if problem], len(files)


REQUEST = '{"custom_id": "a", "url": "bathys:loglikelihood", "body": {}}\n'
PLANTED = {  # file -> (bytes, words of the problem; None: clean)
    "fine.json": (b'{"a": 1}\n', None),
    "fine.jsonl": (REQUEST.encode() + b'{"id": "not a request"}\n', None),
    "torn.jsonl": (REQUEST.encode()[:-1], "newline"),
    "bom.json": (b"\xef\xbb\xbf{}\n", "byte order mark"),
    "latin.json": (b'"\xe9"\n', "decode"),
    "nan.json": (b"[NaN]\n", "NaN"),
    "twice.json": (b'{"a": 1, "\\u0061": 2}\n', "key twice"),
    "array.jsonl": (b"[]\n", "not an object"),
    "same_id.jsonl": (REQUEST.encode() * 2, "custom_id a twice"),
    "url.jsonl": (REQUEST.replace("likelihood", "like").encode(), "unknown"),
    "field.jsonl": (REQUEST.replace("body", "bdy").encode(), "unknown field bdy"),
    "no_body.jsonl": (REQUEST.replace("{}", "[]").encode(), "body not an object"),
}


if __name__ == "__main__":
    planted.main(__doc__, PLANTED, check_tree)
