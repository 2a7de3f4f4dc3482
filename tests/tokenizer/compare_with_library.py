#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `bathys tokenize` with the Hugging Face tokenizers library (pip install tokenizers==0.23.3) on made texts.

  compare_with_library.py BATHYS TOKENIZER.json [--seed N] [--characters N]

Every code point, every pair and triple of code point classes, every added token in several surroundings, random mixtures, bytes
that are no UTF-8 and, where Python's standard library brings some, real text. Texts must come back from their ids. Exit 1 at the
first difference.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer

WHOLE = "BATHYS_FULL" in os.environ  # else a part of the triples stands only within a longer text
SURROGATES = range(0xD800, 0xE000)
# One or more of each kind that the split patterns tell apart.
KINDS = ["a", "Z", "é", "ß", "ж", "अ", "ก", "ʰ", "\u0301", "\u0903", "\u20DD", "一", "龥", "龦", "㐀", "ぁ", "\u3099", "゛", "ー", "・", "゠", "1", "٣", "½",
         "Ⅻ", "²", "〇", ".", "'", "_", "-", "(", "。", "「", "…", "$", "+", "€", "©", "^", "😀", "`", "~", " ", "\t", "\v", "\f", "\r", "\n", "\x1c", "\x85",
         "\u00A0", "\u1680", "\u180E", "\u2003", "\u200B", "\u200D", "\u2028", "\u2029", "\u202F", "\u3000", "\uFEFF", "\uFFFD", "\x00", "\x07", "\x7f", "\uE000",
         "\u0378", "\U000E0001", "\U0010FFFF"]


def texts_of(library, rng, characters):
    added = [library.id_to_token(i) for i in library.get_added_tokens_decoder()]
    points = [c for c in range(0x110000) if c not in SURROGATES]
    # Every code point: in order, between letters, after a space, in random order.
    for begin in range(0, len(points), 512):
        block = [chr(c) for c in points[begin:begin + 512]]
        yield "".join(block)
        yield "".join(f"a{c}b " for c in block)
        yield "".join(f" {c}." for c in block)
    rng.shuffle(points)
    for begin in range(0, len(points), 512):
        yield "".join(map(chr, points[begin:begin + 512]))
    # Every pair and triple of kinds.
    for first in KINDS:
        for second in KINDS:
            yield first + second
            yield "x" + first + second + "y"
            yield "".join(first + second + third for third in KINDS)
            yield from (first + second + third for third in (KINDS if WHOLE else rng.sample(KINDS, 3)))
    for token in added:
        yield token
        yield token * 2
        yield f"a{token}b {token} {token}\n"
        yield token[:-1]
        yield token[1:] + token[:1]
        yield rng.choice(KINDS) + token + rng.choice(KINDS)
    words = ["the", " of", "HTTP/2", "don't", "I'll", "naïve", "深度学习", "日本語テスト", "ไทย", "हिन्दी", "العربية", "x_y", "3.14", "1234567", "\r\n", "\n\n", "   ", "\t",
             "👨\u200D👩\u200D👧", "e\u0301", "straße", "Ελλάδα", "--flag", "https://a.b/c?d=e", "<think>", "</think>"]
    made = 0
    while made < characters:
        parts = []
        for _ in range(rng.randrange(1, 120)):
            kind = rng.randrange(6)
            parts.append(rng.choice(words) if kind < 2 else rng.choice(KINDS) * rng.randrange(1, 5) if kind == 2 else chr(rng.randrange(0x20, 0x7f)) if kind == 3
                         else chr(rng.choice(points)) if kind == 4 else rng.choice(added))
        text = "".join(parts)
        made += len(text)
        yield text
    for unit in ("a", " ", "\n", "😀", "ab", "abcdefghij", "ก", "ज्ञ", "-", "a\u0301"):
        for n in (1, 31, 254, 255, 256, 257, 1000, 5000):
            yield unit * n
            yield "x" + unit * n + "y"
    for module in (argparse, json, random, unicodedata):
        if getattr(module, "__file__", "").endswith(".py"):
            yield open(module.__file__, encoding="utf-8").read()


def run(bathys, options, lines):
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    done = subprocess.run([bathys, "tokenize", *options], input=text.encode(), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
    assert len(answers) == len(lines), f"{len(answers)} answers to {len(lines)} lines"
    return answers


def broken_bytes(rng):
    """Bytes in which some are no UTF-8: damaged, cut off, overlong, surrogates, beyond the last code point."""
    parts = [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe6\xb7", b"\xf0\x9f\x98", b"\x80", b"\xe0\x9f\xbf", b"\xf8\x88\x80\x80\x80", b"\xf0\x8f"]
    for _ in range(20000):
        text = bytearray("".join(rng.choice(KINDS) for _ in range(rng.randrange(8))).encode())
        text[rng.randrange(len(text) + 1):0] = rng.choice(parts) if rng.random() < 0.7 else bytes([rng.randrange(256)])
        if text and rng.random() < 0.3:
            del text[rng.randrange(len(text))]
        yield bytes(text)


def ids_of_bytes(options, data):
    """Ids of any bytes, out of the table that people get."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        done = subprocess.run([options.bathys, "tokenize", "--model", options.tokenizer, file.name], stdout=subprocess.PIPE, check=True)
    return [int(row.split(maxsplit=1)[0]) for row in done.stdout.decode().split("\n")[:-2]]


def same(what, given, ours, theirs):
    for x, a, b in zip(given, ours, theirs):
        if a != b:
            at = next((i for i, (p, q) in enumerate(zip(a, b)) if p != q), min(len(a), len(b)))
            sys.exit(f"{what} differ from entry {at}: {json.dumps(x)[:400]}\n  bathys  {a[max(0, at - 5):at + 8]}\n  library {b[max(0, at - 5):at + 8]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bathys")
    parser.add_argument("tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--characters", type=int, default=1_000_000, help="of the random mixtures")
    options = parser.parse_args()
    library = Tokenizer.from_file(options.tokenizer)
    rng = random.Random(options.seed)
    texts = list(texts_of(library, rng, options.characters))
    model = ["--json", "--model", options.tokenizer]

    theirs = [e.ids for e in library.encode_batch_fast(texts, add_special_tokens=False)]
    same("ids", texts, run(options.bathys, model, texts), theirs)
    same("decoded texts", theirs, run(options.bathys, model + ["--decode"], theirs), texts)

    size = library.get_vocab_size()
    ids = [[rng.randrange(size) if n % 2 else rng.randrange(min(size, 300)) for _ in range(rng.randrange(40))] for n in range(20000)] + [[i] for i in range(size)]
    for skip in (False, True):
        theirs = library.decode_batch(ids, skip_special_tokens=skip)
        same("texts of random ids", ids, run(options.bathys, model + ["--decode"] + ["--skip-special"] * skip, ids), theirs)
    broken = b"\n".join(broken_bytes(rng))
    theirs = library.encode(broken.decode("utf-8", "replace"), add_special_tokens=False).ids
    same("ids of broken bytes", [repr(broken)], [ids_of_bytes(options, broken)], [theirs])
    print(f"{len(texts)} texts of {sum(map(len, texts))} characters and {len(ids)} lists of ids: no difference")


if __name__ == "__main__":
    main()
