#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures `bathys bench tokenizer` and the Hugging Face library beside each other, one thread each, and prints their ratios.

  measure_beside_library.py BATHYS TOKENIZER.json [--texts FILE.jsonl] [--rounds N] [--seconds S] [--size MB]

Two collections of texts of about --size MB each are made from this checkout, the same in every run: English (the prose of
inputs/requests, sentences in random order) and mixed scripts (English, code, numbers and, from the tokenizer's own vocabulary,
words of many scripts). --texts measures texts of your own instead, one JSON string a line. The two programs take turns; the
fastest pass of each counts. The library encodes with encode_batch_fast (no offsets), its ids are not fetched; MB = 10^6 bytes.
No ratio fails: it is a measurement. Texts that come out as different ids do fail.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
from tokenizers import Tokenizer  # noqa: E402  (reads the variables above)

ROOT = pathlib.Path(__file__).resolve().parents[2]
WANTED = {"encode": 1.5, "decode": 2.0}


def requests(name):
    return [json.loads(line)["body"] for line in (ROOT / "inputs/requests" / name).read_text(encoding="utf-8").splitlines()]


def english(size, rng):
    prose = [body["text"] for body in requests("heldout.jsonl")]
    prose += [body["context"] + text for body in requests("choices.jsonl") for text in body["continuations"]]
    sentences = [s for text in prose for s in re.split(r"(?<=[.;:?!])\s", text) if s]
    return documents(size, rng, lambda: rng.choice(sentences) + rng.choice([" ", " ", " ", "\n"]))


def mixed(size, rng, library):
    """Half of it English, code and numbers, half of it words of other scripts: runs of vocabulary entries of one script."""
    scripts = {}
    for text in (library.decode([i]) for i in range(128000)):
        for name, pattern in SCRIPTS.items():
            if re.fullmatch(pattern, text):
                scripts.setdefault(name, []).append(text)
    sentences = re.split(r"(?<=[.;:?!])\s", " ".join(body["text"] for body in requests("heldout.jsonl")))
    code = (ROOT / "tests/cases/gen.py").read_text(encoding="utf-8").splitlines(keepends=True)

    def part():
        kind = rng.randrange(8)
        if kind < 3:
            return rng.choice(sentences) + " "
        if kind == 3:
            return "".join(rng.choice(code) for _ in range(4)) + f"{rng.randrange(10 ** rng.randrange(1, 12))} "
        words = scripts[rng.choice(sorted(scripts))]
        return "".join(words[min(int(rng.expovariate(8) * len(words)), len(words) - 1)] for _ in range(20)) + rng.choice(["。", ". ", "\n", "!? "])

    return documents(size, rng, part)


SCRIPTS = {"han": "[一-鿿]+", "kana": "[ぁ-ヿ]+", "hangul": " ?[가-힣]+", "cyrillic": " ?[а-яё]+", "arabic": " ?[ء-ي]+", "greek": " ?[α-ωά-ώ]+", "hebrew": " ?[א-ת]+",
           "thai": "[ก-๎]+", "devanagari": " ?[ऀ-ॿ]+", "latin": " ?[a-zà-öø-ž]*[à-öø-ž][a-zà-öø-ž]*", "emoji": " ?[\U0001F300-\U0001FAFF☀-➿]+"}


def documents(size, rng, part):
    out, total = [], 0
    while total < size:
        text, wanted = "", rng.randrange(500, 8000)
        while len(text) < wanted:
            text += part()
        out.append(text)
        total += len(text.encode())
    return out


def fastest(seconds, call):
    best, begin = float("inf"), time.perf_counter()
    while True:
        start = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - start)
        if time.perf_counter() - begin >= seconds:
            return best, result


def measure_library(library, texts, seconds):
    encode, encodings = fastest(seconds, lambda: library.encode_batch_fast(texts, add_special_tokens=False))
    ids = [e.ids for e in encodings]
    decode, _ = fastest(seconds, lambda: [library.decode(i, skip_special_tokens=False) for i in ids])
    return {"encode": encode, "decode": decode}, sum(map(len, ids))


def measure_bathys(options, file, n_bytes):
    done = subprocess.run([options.bathys, "bench", "tokenizer", "--model", options.tokenizer, "--seconds", str(options.seconds), file], stdout=subprocess.PIPE, text=True, check=True)
    fields = dict(field.split("=") for field in done.stdout.split())
    mb = n_bytes * 1e-6
    return {"encode": mb / float(fields["encode_mb_per_s"]), "decode": mb / float(fields["decode_mb_per_s"])}, int(fields["tokens"]), float(fields["startup_s"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bathys")
    parser.add_argument("tokenizer")
    parser.add_argument("--texts", help="measure these texts, one JSON string a line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement in a round")
    parser.add_argument("--size", type=float, default=2, help="MB of each collection")
    options = parser.parse_args()
    start = time.perf_counter()
    library = Tokenizer.from_file(options.tokenizer)
    library_startup = time.perf_counter() - start
    size = int(options.size * 1e6)
    if options.texts:
        collections = {"given": [json.loads(line) for line in open(options.texts, encoding="utf-8") if line.strip()]}
    else:
        collections = {"English": english(size, random.Random(1)), "mixed scripts": mixed(size, random.Random(2), library)}
    print("| texts | MB | bytes/token | what | library MB/s | bathys MB/s | ratio | wanted |")
    print("|---|---|---|---|---|---|---|---|")
    startups = []
    with tempfile.TemporaryDirectory() as folder:
        for name, texts in collections.items():
            file = os.path.join(folder, "texts.jsonl")
            with open(file, "w", encoding="utf-8") as out:
                out.writelines(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
            n_bytes = sum(len(text.encode()) for text in texts)
            ours, theirs = {"encode": float("inf"), "decode": float("inf")}, {"encode": float("inf"), "decode": float("inf")}
            for _ in range(options.rounds):
                times, their_tokens = measure_library(library, texts, options.seconds)
                theirs = {what: min(theirs[what], times[what]) for what in theirs}
                times, tokens, startup = measure_bathys(options, file, n_bytes)
                ours = {what: min(ours[what], times[what]) for what in ours}
                startups.append(startup)
                if tokens != their_tokens:
                    sys.exit(f"{name}: {tokens} tokens, the library has {their_tokens}")
            for what in ("encode", "decode"):
                mb = n_bytes * 1e-6
                print(f"| {name} | {mb:.1f} | {n_bytes / tokens:.2f} | {what} | {mb / theirs[what]:.2f} | {mb / ours[what]:.2f} | {theirs[what] / ours[what]:.2f} | {WANTED[what]} |")
    print(f"\nstart-up: library {library_startup:.3f} s, bathys {min(startups):.3f} s (fastest of {options.rounds} runs)")


if __name__ == "__main__":
    main()
