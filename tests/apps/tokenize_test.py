#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bathys tokenize as people and programs use it, with input that means harm. Cases C5 C7 C9 C11 C24 C37 C39."""

import hashlib
import json
import os
import re
import subprocess
import sys
import unittest

from harness import BAD_INPUT, BAD_REQUESTS, CASES, OK, PROGRAM, ROOT, SHARDS, STOPPED, USAGE, Scratch, command, environment, read_lines, run

NANO = ROOT / "inputs" / "models" / "nano" / "tokenizer.json"
TEXTS = CASES / "tokenizer_texts.jsonl"


def tokenize(*options, model=SHARDS, **how):
    return run("tokenize", "--model", model, *options, **how)


class Forms(Scratch):
    def test_programs_get_a_line_for_a_line_and_people_pieces_and_counts(self):
        expected = json.loads((CASES / "tokenizer_expected.json").read_text(encoding="utf-8"))["plain"]
        for model in (SHARDS, NANO):
            done = tokenize("--json", TEXTS, model=model)
            self.assertEqual(done.returncode, OK, done.stderr)
            self.assertEqual([json.loads(line) for line in done.stdout.splitlines()], expected)
            self.assertNotIn(" ", done.stdout)
        back = tokenize("--json", "--decode", input=done.stdout)
        self.assertEqual([json.loads(line) for line in back.stdout.split("\n")[:-1]], read_lines(TEXTS))
        self.assertEqual(tokenize("--json", "--threads", "4", TEXTS).stdout, done.stdout)
        table = tokenize(input="In the beginning").stdout.splitlines()
        self.assertEqual("".join(json.loads(line.split("  ", 1)[1]) for line in (row.strip() for row in table[:-1])), "In the beginning")
        self.assertRegex(table[-1], r"^tokens=\d+ bytes=16 characters=16 bytes_per_token=\d+\.\d{3}$")
        ids = " ".join(row.split()[0] for row in table[:-1])
        self.assertEqual(tokenize("--decode", input=ids).stdout, "In the beginning\n")

    def test_markers_count_unless_text_is_plain(self):
        line = '"<｜User｜>"\n'
        self.assertEqual(len(json.loads(tokenize("--json", input=line).stdout)), 1)
        plain = tokenize("--json", "--plain", input=line).stdout
        self.assertGreater(len(json.loads(plain)), 1)
        self.assertEqual(tokenize("--json", "--decode", input=plain).stdout, line)
        begin = tokenize("--json", "--decode", "--skip-special", input="[0,67]\n")
        self.assertEqual(begin.stdout, '"a"\n')

    def test_chats_have_the_prompts_of_the_official_package(self):  # C9, C11, C24
        cases = read_lines(CASES / "chat_cases.jsonl")
        bodies = "".join(json.dumps(case["body"]) + "\n" for case in cases)
        ids, prompts = tokenize("--chat", input=bodies), tokenize("--chat", "--decode", input=bodies)
        self.assertEqual((ids.returncode, prompts.returncode), (OK, OK), ids.stderr)
        for case, line, prompt in zip(cases, ids.stdout.splitlines(), prompts.stdout.split("\n")[:-1], strict=True):
            with self.subTest(case["id"]):
                self.assertEqual(hashlib.sha256(line.encode()).hexdigest(), case["expect"]["nano_ids_sha256"])
                self.assertEqual(hashlib.sha256(json.loads(prompt).encode()).hexdigest(), case["expect"]["prompt_sha256"])

    def test_answers_are_taken_apart(self):  # C11, C24
        cases = read_lines(CASES / "chat_parse.jsonl")
        self.assertTrue(any(case["id"].startswith("think-") for case in cases))
        done = tokenize("--answer", input="".join(json.dumps({"output": case["output"], "thinking": case["thinking"]}) + "\n" for case in cases))
        self.assertEqual(done.returncode, OK, done.stderr)
        for case, line in zip(cases, done.stdout.split("\n")[:-1], strict=True):
            answer = json.loads(line)
            found = {"content": answer["content"], "reasoning": answer["reasoning"], "finish_reason": "tool_calls" if answer["calls"] else "stop",
                     "calls": [[call["name"], call["arguments"]] for call in answer["calls"]]}
            self.assertEqual(found, case["expect"], case["id"])


    def test_options_that_say_nothing_together_are_refused(self):
        for options in (["--decode", "--plain"], ["--json", "--skip-special"], ["--skip-special"], ["--chat", "--json"], ["--chat", "--plain"], ["--chat", "--skip-special"], ["--chat", "--threads", "2"],
                        ["--decode", "--threads", "2"], ["--answer", "--chat"], ["--answer", "--json"], ["--answer", "--decode"], ["--answer", "--plain"], ["--answer", "--decode", "--skip-special"]):
            with self.subTest(options):
                self.assert_refused(tokenize(*options, input='"a"\n'), USAGE, "--")
        self.assert_refused(tokenize(input="a", model=""), USAGE, "--model is empty")
        chat = '{"messages":[{"role":"user","content":"q"}]}\n'
        self.assertEqual(json.loads(tokenize("--chat", "--decode", "--skip-special", input=chat).stdout).count("begin▁of▁sentence"), 0)
        self.assertEqual(json.loads(tokenize("--chat", "--decode", input=chat).stdout).count("begin▁of▁sentence"), 1)

    def test_names_of_a_chat_that_are_misspelled_are_refused(self):
        for member in ('"reasoning_efort":"low"', '"mesages":[]', '"tool":[]', '"efforts":5', '"tool_choise":"none"', '"respons_format":{}'):
            body = '{"messages":[{"role":"user","content":"q"}],' + member + "}\n"
            self.assert_refused(tokenize("--chat", input=body), BAD_REQUESTS, "line 1", "did you mean")
        others = {"model": "m", "stream": True, "stop": ["x"], "seed": 5, "n": 1, "user": "u", "store": False, "top_p": 0.5, "top_k": 5, "temperature": 1, "max_tokens": 5, "metadata": {}, "logprobs": True,
                  "prompt": "x", "verbosity": "low", "tool_resources": {}, "parallel_tool_calls": True, "logit_bias": {}, "service_tier": "auto", "modalities": ["text"]}
        done = tokenize("--chat", input=json.dumps({"messages": [{"role": "user", "content": "q"}], **others}) + "\n")
        self.assertEqual(done.returncode, OK, done.stderr)

    def within(self, kib, *words):
        """A run that may have so much address space."""

        def limited(*arguments):
            return subprocess.run(["sh", "-c", f'ulimit -v {kib}; exec "$@"', "sh", *command(*arguments)], env=environment(), capture_output=True, text=True, timeout=60, check=False)

        if limited("version").returncode != OK:
            self.skipTest("the program itself does not start in so little address space, as under the sanitizers")
        return limited(*words)

    def test_as_many_threads_as_the_system_grants(self):
        texts = self.write("texts", '"And God said"\n' * 5000)
        wanted = tokenize("--json", texts).stdout
        limited = self.within(1_500_000, "tokenize", "--model", NANO, "--json", "--threads", "4096", texts)
        self.assertEqual((limited.returncode, limited.stdout), (OK, wanted), limited.stderr)

    def test_what_does_not_fit_is_said_with_what_helps(self):
        text = self.write("large", "a" * 20_000_000)
        done = self.within(400_000, "tokenize", "--model", NANO, text)
        self.assertIn(f"out of memory: the input, its ids and 1 threads do not fit; split {text}", done.stderr)
        self.assertEqual(done.returncode, 70)


class Streams(Scratch):
    def test_what_can_be_read_once_gives_what_a_file_gives(self):  # C37
        lines = "".join(json.dumps(f"And God said {n} " * 40) + "\n" for n in range(5000))
        self.assertGreater(len(lines), 1 << 20)
        file = self.write("texts.jsonl", lines)
        whole = tokenize("--json", file).stdout
        self.assertEqual(whole.count("\n"), 5000)
        self.assertEqual(tokenize("--json", input=lines).stdout, whole)
        self.assertEqual(tokenize("--json", "-", input=lines).stdout, whole)
        self.assertEqual(tokenize("--json", "/dev/stdin", input=lines).stdout, whole)
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        with subprocess.Popen(["sh", "-c", 'head -c 100000 "$0" > "$1.part"; { cat "$1.part"; sleep 0.3; tail -c +100001 "$0"; } > "$1"', str(file), str(fifo)]):
            self.assertEqual(tokenize("--json", fifo).stdout, whole)  # a writer that pauses in the middle of a line
        back = tokenize("--json", "--decode", input=whole)
        self.assertEqual([json.loads(line) for line in back.stdout.splitlines()], [json.loads(line) for line in lines.splitlines()])

    def test_a_file_that_grows_gives_at_least_what_it_had(self):  # C37
        file = self.write("texts.jsonl", '"In the beginning"\n' * 200_000)
        with subprocess.Popen(["sh", "-c", 'for n in 1 2 3 4 5 6 7 8; do printf \'"And God said"\\n\' >> "$0"; done', str(file)]):
            done = tokenize("--json", file)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(len({line for line in done.stdout.splitlines()[:200_000]}), 1)
        self.assertGreaterEqual(done.stdout.count("\n"), 200_000)

    def test_output_that_goes_nowhere_is_an_error(self):  # C39
        texts = self.write("texts", '"And God said"\n' * 100_000)
        small = self.write("small", '"a"\n')
        ids = self.write("ids", "[67]\n")
        chat = self.write("chat", '{"messages":[{"role":"user","content":"q"}]}\n')
        answer = self.write("answer", '{"output":"a"}\n')
        for options in (("--json", small), ("--json", texts), ("--json", "--decode", ids), ("--decode", ids), ("--chat", chat), ("--answer", answer), (small,)):
            with self.subTest(options), open("/dev/full", "w", encoding="utf-8") as full:
                self.assert_refused(tokenize(*options, stdout=full), STOPPED, "standard output")
        closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command("tokenize", "--model", SHARDS, "--json", small)], env=environment(), capture_output=True, text=True,
                                timeout=60, check=False)
        self.assert_refused(closed, USAGE, "standard output")
        head = subprocess.run(f"'{PROGRAM}' tokenize --model '{SHARDS}' --json '{texts}' | head -1", shell=True, executable="/bin/bash", env=environment(),
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((head.stderr, head.stdout.count("\n")), ("", 1))


class Hostile(Scratch):
    def test_lines_that_are_no_strings_are_refused_by_number(self):
        bad = {'"\\ud800"': "surrogate", '"\\udc00x"': "surrogate", '"\\ud800\\ud800"': "surrogate", '"a\0b"': "control character", '"\x01"': "control character", '"a': "missing closing quote",
               '"\\x"': "forbidden character after backslash", "5": "expected a JSON string", "null": "expected a JSON string", '["a"]': "expected a JSON string", '"a" "b"': "not JSON",
               "[" * 1_000_000: "nested more than 512 deep", '{"a":' * 100_000: "nested more than 512 deep", '{"a":1,"\\u0061":2}': "stands twice", "'a'": "not JSON", "NaN": "not JSON", '"a"\0x': "byte 4: a NUL byte", '"a"\0"b"': "byte 4: a NUL byte"}
        for text, word in bad.items():
            with self.subTest(text[:40]):
                self.assert_refused(tokenize("--json", self.write("bad", '"fine"\n\n' + text + "\n")), BAD_REQUESTS, "line 3", word)
        self.assert_refused(tokenize("--json", self.write("bad", b'"\xff"\n')), BAD_REQUESTS, "line 1", "UTF-8")
        for text in ("[-1]", "[1024]", "[67.0]", "[4294967363]", "[18446744073709551616]", '["67"]', "[null]", "[[67]]", "67", '{"a":67}'):
            with self.subTest(text):
                self.assert_refused(tokenize("--json", "--decode", input=text + "\n"), BAD_REQUESTS, "line 1")
        for text in ("-1", "1024", "67.0", "4294967363", "0x43", "a", "\0"):
            self.assert_refused(tokenize("--decode", input="67 " + text), BAD_REQUESTS, "byte 3")
        for text in ('{"messages":[]}', "[]", "{}", '{"messages":[{"role":"user","content":"\\ud800"}]}', '{"messages":' + "[" * 600 + "]" * 600 + "}"):
            self.assert_refused(tokenize("--chat", input=text + "\n"), BAD_REQUESTS, "line 1")
        self.assert_refused(tokenize("--json", "--decode", input="[67]\0[68]\n"), BAD_REQUESTS, "line 1", "a NUL byte")
        for text in ("{}", '{"output":5}', '{"output":"a"}\0x', '{"output":"a","more":1}', "[]"):
            self.assert_refused(tokenize("--answer", input=text + "\n"), BAD_REQUESTS, "line 1")

    def test_odd_texts_come_back(self):
        texts = ["", "\0", "a\0b", "\ufeff", "\ufffd", "\uffff", "\U0010ffff", "😀", "\u2028", "\r", "\r\n", "\x7f\x80", "\n" * 1000, "<" * 5000, "<｜User｜>" * 500, "a" * 2_000_000, " " * 2_000_000,
                 "😀" * 300_000]
        lines = "".join(json.dumps(text, ensure_ascii=n % 2 == 0) + "\n" for n, text in enumerate(texts))
        ids = tokenize("--json", input=lines)
        self.assertEqual(ids.returncode, OK, ids.stderr)
        back = tokenize("--json", "--decode", input=ids.stdout)
        self.assertEqual([json.loads(line) for line in back.stdout.split("\n")[:-1]], texts)

    def test_bytes_that_are_no_utf8_count_as_replacement_characters(self):
        raw, valid = self.write("raw", b"a\xff\xe6\xb7z\xc0\xaf\xed\xa0\x80\xf0\x9f\x98\x00"), self.write("valid", b"a\xff\xe6\xb7z\xc0\xaf\xed\xa0\x80\xf0\x9f\x98\x00".decode("utf-8", "replace"))
        rows = [[line for line in tokenize(path).stdout.splitlines() if not line.startswith("tokens=")] for path in (raw, valid)]
        self.assertEqual(rows[0], rows[1])

    def test_damaged_tokenizers_are_refused(self):  # C5, C7
        made = self.folder / "odd"
        subprocess.run([sys.executable, ROOT / "tests" / "cases" / "gen.py", "tokenizers", ROOT / "inputs" / "models" / "nano", made], check=True, stdout=subprocess.DEVNULL)
        expected = json.loads((CASES / "tokenizer_expected.json").read_text(encoding="utf-8"))
        names = sorted(path.name for path in made.iterdir())
        self.assertEqual(len(names), 19)
        for name in names:
            with self.subTest(name):
                done = tokenize("--json", TEXTS, model=made / name)
                if "_refuse" in name:
                    self.assert_refused(done, BAD_INPUT, name)
                    self.assertEqual(done.stdout, "")
                elif "_ok_" in name or ("_either" in name and done.returncode == OK):
                    self.assertEqual([json.loads(line) for line in done.stdout.splitlines()], expected["plain"])
                elif done.returncode == OK:
                    found = done.stdout.splitlines()
                    self.assertEqual({n: json.loads(found[int(n)]) for n in expected["differs"][name.removesuffix(".json")]}, expected["differs"][name.removesuffix(".json")])
                else:
                    self.assert_refused(done, BAD_INPUT, name)

    def test_files_that_are_no_tokenizer_are_refused(self):
        whole = NANO.read_text(encoding="utf-8")
        merges = json.loads(whole)
        merges["model"]["merges"][5] = ["a", "☃"]
        bad = {"empty": "", "zeros": "\0" * 5000, "html": "<!DOCTYPE html><html>", "pointer": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
               "deep": "[" * 1_000_000, "deep_objects": '{"a":' * 100_000, "half": whole[: len(whole) // 2], "last_byte": whole.rstrip()[:-1], "nul": whole.replace('"!"', '"\0"', 1),
               "surrogate": whole.replace('"!"', '"\\ud800"', 1), "same_id": whole.replace('"!": 3', '"!": 4', 1), "missing_token": json.dumps(merges), "shards": "\x89HDF\r\n\x1a\n"}
        for name, text in bad.items():
            with self.subTest(name):
                self.assert_refused(tokenize("--json", TEXTS, model=self.write(name, text)), BAD_INPUT, name)
        self.assert_refused(tokenize("--json", TEXTS, model=self.folder / "absent"), BAD_INPUT, "absent")
        self.assert_refused(tokenize("--json", TEXTS, model=self.folder), BAD_INPUT, str(self.folder))
        self.assertTrue(re.search(r'"!": 3\b', whole))


if __name__ == "__main__":
    unittest.main()
