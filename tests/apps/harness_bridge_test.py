#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bridge to lm-evaluation-harness against the real package: exported, answered by the program and scored, every metric equals that of an
LM class that asks the program directly. Needs lm-eval (tests/requirements.txt); case C17 for one document."""

import atexit
import contextlib
import io
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

HF_HOME = tempfile.mkdtemp(prefix="bathys-hf-")
atexit.register(shutil.rmtree, HF_HOME, ignore_errors=True)
os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_EVALUATE_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TQDM_DISABLE="1",
                  HF_HOME=HF_HOME, LMEVAL_LOG_LEVEL="ERROR")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "jobs" / "harness"))

import bridge_lines
import lm_eval_bridge
from harness import OK, SHARDS, Scratch, read_lines, run

try:
    import lm_eval
except ImportError:
    print("skipped: no lm-eval in this Python")
    sys.exit(77)
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

DOCUMENTS = [
    {"q": "In the beginning God created the", "choices": ["heaven", "heaven and the earth", "word", "  sea"], "gold": 1, "word": "beginning"},
    {"q": "And the earth was without form, and", "choices": ["void", "void", "darkness upon", "light"], "gold": 0, "word": "earth"},
    {"q": "And God said, Let there be", "choices": ["light", "a firmament", "darkness", "Moses"], "gold": 0, "word": "light"},
    {"q": "And the LORD spake unto Moses, ", "choices": ["saying", "and said", "in", "light"], "gold": 0, "word": "Moses"},
    {"q": "And God said, Let there be", "choices": ["light", "a firmament", "darkness", "Moses"], "gold": 0, "word": "light"},  # once more
]
COMMON = "dataset_path: json\ndataset_kwargs: {data_files: {test: DATA}}\ntest_split: test\n"
TASKS = {
    "t_choice": """output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: "{{choices}}"
doc_to_target: gold
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}, {metric: acc_mutual_info}, {metric: exact_match}]
""",
    "t_scored": """output_type: loglikelihood
doc_to_text: "{{q}} "
doc_to_target: "{{choices[gold]}}"
metric_list: [{metric: perplexity}, {metric: acc}]
""",
    "t_rolling": """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{q}} {{choices[gold]}}."
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
""",
    "t_drawn": """output_type: generate_until
doc_to_text: "{{q}}"
doc_to_target: "{{word}}"
repeats: 3
generation_kwargs: {until: [".", "\\n"], max_gen_toks: 12, do_sample: true, temperature: 0.8, top_p: 0.9}
filter_list:
  - {name: first, filter: [{function: take_first}]}
  - {name: voted, filter: [{function: regex, regex_pattern: "(\\\\w+)"}, {function: majority_vote}, {function: take_first}]}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true, ignore_case: true}]
num_fewshot: 1
fewshot_config: {split: test}
""",
    "t_greedy": """output_type: generate_until
doc_to_text: "{{q}}"
doc_to_target: "{{word}}"
generation_kwargs: {until: [","], max_gen_toks: 8, top_k: 0}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
}


class Direct(LM):
    """Asks the program with one line for each request, in the plainest form, whenever the harness asks."""

    def __init__(self, test, chat=None):
        super().__init__()
        self.test, self.chat, self.n = test, chat or {}, 0

    def ask(self, bodies, url):
        self.n += 1
        lines = [{"custom_id": str(i), "url": "bathys:" + url, "body": body} for i, body in enumerate(bodies)]
        requests = self.test.write(f"direct{self.n}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        done = self.test.evaluate(requests, name=f"direct{self.n}")
        self.test.assertEqual(done.returncode, OK, done.stderr)
        return [line["result"] for line in read_lines(self.test.folder / f"direct{self.n}" / "results.jsonl")]

    def context(self, text):
        return {"messages": json.loads(text), **self.chat} if self.chat and text else {"context": text}

    def loglikelihood(self, requests):
        found = self.ask([{**self.context(request.args[0]), "continuations": [request.args[1]]} for request in requests], "loglikelihood")
        return [(result["logprob"][0], result["is_greedy"][0]) for result in found]

    def loglikelihood_rolling(self, requests):
        return [result["logprob"] for result in self.ask([{"text": request.args[0]} for request in requests], "loglikelihood_rolling")]

    def generate_until(self, requests):
        # The noise of a draw is keyed by id and repeat, so drawn texts come from the export's own lines; greedy ones are asked for one by one.
        answers, greedy = [None] * len(requests), []
        for i, request in enumerate(requests):
            if request.args[1].get("do_sample"):
                answers[i] = self.test.drawn(request)
            else:
                greedy.append(i)
        bodies = [{**self.context(requests[i].args[0]), "until": requests[i].args[1]["until"], "max_gen_toks": requests[i].args[1]["max_gen_toks"]}
                  for i in greedy]
        for i, result in zip(greedy, self.ask(bodies, "generate_until") if bodies else []):
            answers[i] = result["text"]
        return answers

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return json.dumps(chat_history)

    @property
    def tokenizer_name(self):
        return "direct"


class Bridge(Scratch):
    def setUp(self):
        super().setUp()
        self.data = self.write("data.jsonl", "".join(json.dumps(document) + "\n" for document in DOCUMENTS))
        (self.folder / "tasks").mkdir()
        for name, text in TASKS.items():
            self.write(f"tasks/{name}.yaml", f"task: {name}\n" + COMMON.replace("DATA", str(self.data)) + text)

    def bridge(self, *words, code=0):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            found = lm_eval_bridge.main([str(word) for word in words])
        self.assertEqual(found, code, err.getvalue())
        return out.getvalue() if code == 0 else err.getvalue()

    def export(self, tasks, *options, code=0):
        return self.bridge("export", "--tasks", ",".join(tasks), "--include-path", self.folder / "tasks", "--only-include-path", "--out", self.folder / "export",
                           "--bootstrap-iters", "0", *options, code=code)

    def answer(self, name="answers"):
        done = self.evaluate(self.folder / "export" / "requests.jsonl", name=name, ranks=2)
        self.assertEqual(done.returncode, OK, done.stderr)

    def score(self, *options, code=0):
        text = self.bridge("score", "--export", self.folder / "export", "--run", self.folder / "answers", "--output", self.folder / "scores.json",
                           *options, code=code)
        return json.loads((self.folder / "scores.json").read_text()) if code == 0 else text

    def drawn(self, request):
        key = bridge_lines.request_hash(request)
        seen = self.draws.setdefault(key, {"lines": [line for line in read_lines(self.folder / "answers" / "results.jsonl")
                                                     if key in line["meta"]["hashes"]], "n": 0})
        seen["n"] += 1
        return seen["lines"][seen["n"] - 1]["result"]["text"]

    def directly(self, tasks, chat=None, **named):
        self.draws = {}
        return lm_eval.simple_evaluate(Direct(self, chat), tasks=tasks, task_manager=TaskManager(include_path=str(self.folder / "tasks"), include_defaults=False),
                                       bootstrap_iters=0, fewshot_as_multiturn=True, **named)

    def assert_same_metrics(self, scored, direct, tasks):
        for task in tasks:
            ours, theirs = scored["results"][task], direct["results"][task]
            self.assertEqual(set(ours), set(theirs))
            for name, value in theirs.items():
                if name != "alias":
                    self.assertEqual(ours[name] if ours[name] == ours[name] else None, value if value == value else None, (task, name))

    def test_every_kind_of_task_scores_as_a_direct_model(self):
        tasks = list(TASKS)
        self.assertIn("answers in", self.export(tasks))
        manifest = json.loads((self.folder / "export" / "manifest.json").read_text())
        self.assertEqual(manifest["counts"]["t_choice"], {"loglikelihood": 40})  # with the unconditional ones of acc_mutual_info
        lines = read_lines(self.folder / "export" / "requests.jsonl")
        choice = [line for line in lines if line["meta"]["task"] == "t_choice"]
        self.assertEqual([len(line["body"]["continuations"]) for line in choice], [4] * 10)  # one line a context
        self.assertEqual({line["body"]["repeats"] for line in lines if line["meta"]["task"] == "t_drawn"}, {3})
        self.assertEqual(len({line["custom_id"] for line in lines}), len(lines))
        self.answer()
        scored = self.score()
        self.assertEqual(scored["bathys"]["coverage"], {"requests": 60, "missing": 0, "extra": 0, "reasons": {}})
        direct = self.directly(tasks)
        self.assert_same_metrics(scored, direct, tasks)
        self.assertIn("exact_match,voted", scored["results"]["t_drawn"])
        self.assertLess(scored["results"]["t_rolling"]["word_perplexity,none"], 1000)
        for task in tasks:  # answers arrive at their documents
            self.assertEqual([sample["resps"] for sample in scored["samples"][task]],
                             [json.loads(json.dumps(sample["resps"])) for sample in direct["samples"][task]])

    def test_one_document_and_chats(self):
        tasks = ["t_choice", "t_greedy"]
        self.export(tasks, "--limit", "1")
        self.answer()
        self.assert_same_metrics(self.score(), self.directly(tasks, limit=1), tasks)
        self.assertIn("say --thinking", self.export(tasks, "--apply-chat-template", code=2))
        self.assertIn("--thinking off", self.export(["t_choice"], "--apply-chat-template", "--thinking", "on", code=2))
        self.export(tasks, "--apply-chat-template", "--thinking", "off", "--limit", "2", "--system-instruction", "Answer.")
        body = read_lines(self.folder / "export" / "requests.jsonl")[0]["body"]
        self.assertEqual((body["messages"][0], body["thinking"]), ({"role": "system", "content": "Answer."}, False))
        self.answer()
        direct = self.directly(tasks, chat={"thinking": False}, limit=2, apply_chat_template=True, system_instruction="Answer.")
        self.assert_same_metrics(self.score(), direct, tasks)

    def test_what_does_not_belong_together_is_refused(self):
        self.export(["t_choice", "t_greedy"], "--limit", "2")
        self.answer()
        # A document changed between export and score.
        documents = [dict(DOCUMENTS[0], q="In the end God created the"), *DOCUMENTS[1:]]
        before = self.data.read_text()
        self.data.write_text("".join(json.dumps(document) + "\n" for document in documents))
        text = self.score(code=2)
        self.assertRegex(text, r"t_choice, document 0.*not in the run")
        scored = self.score("--allow-missing")
        self.assertEqual(scored["bathys"]["coverage"]["missing"], 5)  # 4 choices of one context, one greedy
        self.assertEqual(scored["bathys"]["coverage"]["extra"], 5)
        self.data.write_text(before)
        # Another export than the one that was answered; another version.
        self.export(["t_choice"], "--limit", "2")
        self.assertIn("answers other requests", self.score(code=2))
        manifest = self.folder / "export" / "manifest.json"
        manifest.write_text(manifest.read_text().replace(lm_eval.__version__, "0.4.1"))
        self.assertIn("exported by lm_eval 0.4.1", self.score(code=2))
        # Files that a disk or a hand damaged.
        self.export(["t_choice", "t_greedy"], "--limit", "2")
        for path in (manifest, *(self.folder / "answers" / name for name in ("manifest.json", "results.jsonl", "summary.json"))):
            whole = path.read_bytes()
            for damaged in (whole[: len(whole) // 2], b"[]", b"\xff\xfe", b'{"custom_id": "x"}\n'):
                with self.subTest(path=path.name, damaged=damaged[:20]):
                    path.write_bytes(damaged)
                    self.assertIn("bathys: error: ", self.score(code=2))
            path.write_bytes(whole)
        # Settings that would measure something else.
        self.assertIn("top_k", self.export(["t_greedy"], "--gen-kwargs", '{"top_k": 5}', code=2))
        self.assertIn("not finished", self.bridge("score", "--export", self.folder / "export", "--run", self.unfinished(), "--other-version", code=2))

    def unfinished(self):
        run_folder = self.folder / "unfinished"
        done = run("eval", "--model", SHARDS, "--requests", self.folder / "export" / "requests.jsonl", "--out", run_folder, "--max-seconds", "0.001",
                   "--grace-seconds", "0")
        self.assertEqual(done.returncode, 75, done.stderr)
        return run_folder


if __name__ == "__main__":
    unittest.main()
