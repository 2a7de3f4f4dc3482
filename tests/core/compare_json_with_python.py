#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the JSON reader takes and refuses, beside Python's json, and the values it reads.

  compare_json_with_python.py JSON_ANSWERS [--seed N] [--texts N]

Texts are made of random values and then damaged: bytes put in (NUL among them), taken out, doubled, cut off. A text that the
reader takes and Python refuses, or the other way round, ends the test with exit 1, and so does another value.
"""
import argparse
import json
import math
import random
import subprocess
import sys

STRINGS = ["", "a", "b\n\"\\/", "naïve 深度 😀\u2028", "\x7f\x80\uffff", "key", "0"]
NUMBERS = ["0", "-0", "1", "-1", "0.5", "1e5", "1E-7", "-1.50e+3", "18446744073709551615", "9223372036854775808", "-9223372036854775808", "100"]
PIECES = [b"\0", b"\0", b"\0x", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\t", b"\r", b"\x0b", b"\x0c", b"\x1f", b"\x7f", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
          b"\xc3", b"\xc2\xa0", b"\xef\xbb\xbf", b"\\u0000", b"\\ud800", b"\\udc00", b"\\ud83d\\ude00", b"\\x", b"null", b"true", b"NaN", b"Infinity", b"-", b"+", b".", b"e", b"0", b"01", b"1e999", b"1.",
          b"//", b"/**/", b"'", b"a", b'"a":1', b"nul", b"#"]


def text_of(rng, depth=0):
    """A random valid text, as bytes."""
    space = rng.choice(["", "", " ", "\t\r\n"])
    kind = rng.randrange(8 if depth < 4 else 4)
    if kind < 2:
        return rng.choice(NUMBERS)
    if kind == 2:
        return json.dumps(rng.choice(STRINGS), ensure_ascii=rng.random() < 0.5)
    if kind == 3:
        return rng.choice(["null", "true", "false"])
    if kind < 6:
        return "[" + ",".join(space + text_of(rng, depth + 1) for _ in range(rng.randrange(4))) + space + "]"
    names = rng.sample(STRINGS, rng.randrange(4))
    return "{" + ",".join(space + json.dumps(name) + space + ":" + text_of(rng, depth + 1) for name in names) + space + "}"


def damaged(rng, text):
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        at = rng.choice([rng.randrange(len(text) + 1), len(text)])
        size = 1 + rng.randrange(3)
        kind = rng.randrange(5)
        if kind < 2:
            text = text[:at] + rng.choice(PIECES) + text[at:]
        elif kind == 2:
            text = text[:at] + text[at + size:]
        elif kind == 3:
            text = text[:at] + text[at:at + size] + text[at:]
        else:
            text = text[:at]
    return text


class Refused(ValueError):
    pass


def members(pairs):
    if len({name for name, _ in pairs}) != len(pairs):
        raise Refused("a key stands twice")
    return dict(pairs)


def real(word):
    value = float(word)
    if not math.isfinite(value):
        raise Refused("out of range")
    return value


def whole(word):
    value = int(word)
    if -(1 << 63) <= value < 1 << 64:
        return value
    return real(word)


def refuse(word):
    raise Refused(word)


def expected(data):
    """Python's reading with our three rules: no key twice, numbers finite, no lone surrogates."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, parse_constant=refuse, object_pairs_hook=members, parse_float=real, parse_int=whole)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except ValueError:
        return None
    return [value]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=int, default=100_000)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    valid = [text_of(rng).encode() for _ in range(args.texts // 20)]
    texts = [end for text in valid for end in (text, text + b"\0x", text + b"\0", b"\0" + text, text + b"\n\0" + text, b"\xef\xbb\xbf" + text)]
    texts += [damaged(rng, rng.choice(valid)) for _ in range(args.texts - len(texts))]
    done = subprocess.run([args.answers], input="".join(text.hex() + "\n" for text in texts), capture_output=True, encoding="utf-8", check=True)
    taken = 0
    for text, answer in zip(texts, done.stdout.split("\n")[:-1], strict=True):
        wanted = expected(text)
        if answer.startswith("taken ") != (wanted is not None):
            sys.exit(f"{text!r}: python {'refuses' if wanted is None else 'takes'} it, bathys: {answer[:300]}")
        if wanted is None and b"\0" in text and "a NUL byte" in answer and f"at byte {text.index(0) + 1}:" not in answer:
            sys.exit(f"{text!r}: the NUL byte has another place: {answer}")
        if wanted is not None:
            taken += 1
            found = json.loads(answer.removeprefix("taken "), object_pairs_hook=members)
            if repr(found) != repr(wanted[0]):
                sys.exit(f"{text!r}: python reads {wanted[0]!r}, bathys {found!r}")
    if not 0.1 < taken / len(texts) < 0.9:
        sys.exit(f"{taken} of {len(texts)} texts are JSON: the damage is too weak or too strong")
    print(f"texts={len(texts)} taken={taken}")


if __name__ == "__main__":
    main()
