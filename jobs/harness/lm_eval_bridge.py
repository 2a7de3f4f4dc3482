#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lm-evaluation-harness and bathys in two phases: the harness writes its requests to a file, a job answers them, the harness scores.

  lm_eval_bridge.py export --tasks T1,T2 --out DIR [--include-path P] [--limit N] [--apply-chat-template --thinking on|off] ...
  bathys eval --model SHARD_DIR --requests DIR/requests.jsonl --out RUN_DIR          (a job; needs neither Python nor network)
  lm_eval_bridge.py score --export DIR --run RUN_DIR [--output FILE.json]

export and score need Python with lm-eval 0.4.13, on a login node or anywhere else.
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import sys

from bridge_lines import BridgeError, Chat, answers_of, assign, lines_of, mark_messages

SCHEMA = "bathys.harness.1"
TOKENIZER_NAME = "bathys-messages"  # constant: it keys the harness's caches, and the real encoding happens in the run


class Recorded(BaseException):
    """Ends the harness's evaluation once all requests are known."""


def harness(tasks_wanted, arguments, answer):
    """Runs simple_evaluate with an LM whose first call hands all requests to answer(requests), which returns a function of a list of requests.

    The tasks are caught where they are loaded: when the LM is called first, the requests of all of them are built.
    """
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    class Tasks(TaskManager):
        loaded = None

        def load(self, *positional, **named):
            type(self).loaded = super().load(*positional, **named)
            return type(self).loaded

    class Bathys(LM):
        def __init__(self):
            super().__init__()
            self.answers, self.asked = None, set()

        def ask(self, kind, requests):
            if kind in self.asked:
                raise BridgeError(f"a task asks for {kind} twice, the second time knowing answers; such tasks cannot be split into two phases")
            self.asked.add(kind)
            if self.answers is None:
                self.answers = answer([request for task in Tasks.loaded["tasks"].values() for request in task.instances])
            return self.answers(requests)

        def loglikelihood(self, requests):
            return self.ask("loglikelihood", requests)

        def loglikelihood_rolling(self, requests):
            return self.ask("loglikelihood_rolling", requests)

        def generate_until(self, requests):
            return self.ask("generate_until", requests)

        def apply_chat_template(self, chat_history, add_generation_prompt=True):
            return mark_messages(chat_history, add_generation_prompt)

        @property
        def tokenizer_name(self):
            return TOKENIZER_NAME

    seeds = arguments["seeds"]
    return simple_evaluate(
        Bathys(), tasks=tasks_wanted, task_manager=Tasks(include_path=arguments["include_path"], include_defaults=arguments["include_defaults"], metadata=arguments["metadata"]),
        num_fewshot=arguments["num_fewshot"], limit=arguments["limit"], apply_chat_template=arguments["apply_chat_template"],
        fewshot_as_multiturn=arguments["fewshot_as_multiturn"], system_instruction=arguments["system_instruction"],
        gen_kwargs=arguments["gen_kwargs"], random_seed=seeds[0], numpy_random_seed=seeds[1], torch_random_seed=seeds[2],
        fewshot_random_seed=seeds[3], bootstrap_iters=arguments["bootstrap_iters"], log_samples=True,
        confirm_run_unsafe_code=arguments["confirm_run_unsafe_code"])


def versions():
    import lm_eval
    from lm_eval.loggers.utils import get_git_commit_hash
    return {"name": "lm_eval", "version": lm_eval.__version__, "git_hash": get_git_commit_hash()}


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def write_whole(path, text):
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def export(options):
    arguments = {
        "include_path": [os.path.abspath(path) for path in options.include_path] or None,
        "include_defaults": not options.only_include_path, "limit": options.limit,
        "num_fewshot": options.num_fewshot, "seeds": options.seeds, "apply_chat_template": options.apply_chat_template,
        "fewshot_as_multiturn": options.fewshot_as_multiturn, "system_instruction": options.system_instruction,
        "gen_kwargs": options.gen_kwargs, "metadata": options.metadata, "bootstrap_iters": options.bootstrap_iters,
        "confirm_run_unsafe_code": options.confirm_run_unsafe_code}
    if options.apply_chat_template and options.thinking is None:
        raise BridgeError("say --thinking on or --thinking off: without a word this model thinks, and the two are different measurements")
    chat = Chat(options.thinking == "on", options.effort)
    common = {name: value for name, value in (("add_bos", options.add_bos or None), ("think_end", options.think_end)) if value is not None}
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    requests_file, counts, totals = out / "requests.jsonl", collections.defaultdict(collections.Counter), collections.Counter()

    def record(requests):
        temporary = requests_file.with_name("requests.jsonl.partial")
        for request in requests:
            counts[request.task_name][request.request_type] += 1
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            for line in lines_of(requests, chat, common):
                if line["url"] != "bathys:generate_until":
                    line["body"].pop("think_end", None)
                totals["lines"] += 1
                totals["answers"] += line["body"].get("repeats", 1)
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        temporary.replace(requests_file)
        raise Recorded

    try:
        harness(options.tasks, arguments, record)
        raise BridgeError("the harness made no request; nothing was exported")
    except Recorded:
        pass
    manifest = {"schema": SCHEMA, "harness": versions(), "tasks": options.tasks, "arguments": arguments,
                "encoding": {"chat_template": options.apply_chat_template, "tokenizer_name": TOKENIZER_NAME, **common,
                             **(chat.members() if options.apply_chat_template else {})},
                "requests": {"file": requests_file.name, "sha256": sha256_of(requests_file), **totals},
                "counts": {task: dict(kinds) for task, kinds in sorted(counts.items())}}
    write_whole(out / "manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    print(f"{totals['lines']} lines, {totals['answers']} answers in {requests_file}; evaluate them:\n"
          f"  bathys eval --model SHARD_DIR --requests {requests_file} --out RUN_DIR")


def read_json(path, cure, *members):
    """The object of a JSON file, which has these objects as members; `cure`: what makes the file anew."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BridgeError(f"{path} is damaged: {error}; {cure}") from None
    if not isinstance(value, dict) or not all(isinstance(value.get(name), dict) for name in members):
        raise BridgeError(f"{path} is damaged: it is no object {'with ' + ', '.join(members) if members else ''}; {cure}")
    return value


RUN_AGAIN = "run the evaluation's command again, which writes it anew"


def read_results(run):
    path = run / "results.jsonl"
    if not path.exists():
        unfinished = (run / "results.partial.jsonl").exists() or (run / "journal").exists()
        raise BridgeError(f"{run} holds {'a run that is not finished; run its command again' if unfinished else 'no results.jsonl'}")
    with open(path, encoding="utf-8", newline="\n") as lines:
        try:
            for line in lines:
                yield json.loads(line)
        except ValueError as error:
            raise BridgeError(f"{path} is damaged: {error}; {RUN_AGAIN}") from None


def describe(request):
    return f"{request.task_name}, document {request.doc_id}, {request.request_type} {request.idx}"


def score(options):
    folder, run = pathlib.Path(options.export), pathlib.Path(options.run)
    manifest = read_json(folder / "manifest.json", "export again")
    if manifest.get("schema") != SCHEMA:
        raise BridgeError(f"{folder}/manifest.json is none of this program's")
    now = versions()
    if now["version"] != manifest["harness"]["version"] and not options.other_version:
        raise BridgeError(f"the requests were exported by lm_eval {manifest['harness']['version']}, this is {now['version']}, which may ask or score "
                          "otherwise; use the same version, or --other-version")
    identity = read_json(run / "manifest.json", "evaluate into another folder", "identity")["identity"]
    counts = read_json(run / "summary.json", RUN_AGAIN, "counts")["counts"] if (run / "results.jsonl").exists() else {}
    if identity.get("requests_sha256") != manifest["requests"]["sha256"]:
        raise BridgeError(f"{run} answers other requests than those of {folder}: the file's hash is {identity.get('requests_sha256', 'not there')[:12]}.., "
                          f"exported was {manifest['requests']['sha256'][:12]}..")
    answers, coverage = answers_of(read_results(run)), {}

    def answer(requests):
        places, missing, extra = assign(requests, answers)
        coverage.update(requests=len(requests), missing=len(missing), extra=extra,
                        reasons=dict(collections.Counter(reason for _, reason in missing)))
        if (missing or extra) and not options.allow_missing:
            first = f"; the first is {describe(missing[0][0])}: {missing[0][1]}" if missing else ""
            raise BridgeError(f"the harness asks for {len(requests)} requests: {len(missing)} have no answer, {extra} answers belong to none{first}. "
                              "The task or its data changed since the export, or requests failed; --allow-missing scores the rest as wrong")
        return lambda asked: [places[id(request)].next() for request in asked]

    arguments = dict(manifest["arguments"])
    if options.bootstrap_iters is not None:
        arguments["bootstrap_iters"] = options.bootstrap_iters
    results = harness(manifest["tasks"], arguments, answer)
    results["bathys"] = {"run": identity, "encoding": manifest["encoding"], "coverage": coverage,
                         "truncated": counts["truncated"], "in_thinking": counts["in_thinking"]}
    if options.output:
        from lm_eval.utils import handle_non_serializable
        write_whole(pathlib.Path(options.output), json.dumps(results, indent=2, default=handle_non_serializable, ensure_ascii=False) + "\n")
    from lm_eval.utils import make_table
    print(make_table(results))
    print(f"coverage {coverage['requests'] - coverage['missing']} of {coverage['requests']} requests; truncated {counts['truncated']}, "
          f"ended while thinking {counts['in_thinking']}")
    return results


def limit(text):
    value = float(text)
    return int(value) if value >= 1 else value


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("export", help="write the harness's requests to a file")
    one.add_argument("--tasks", required=True, type=lambda text: [name for name in text.split(",") if name])
    one.add_argument("--out", required=True, help="folder of requests.jsonl and manifest.json")
    one.add_argument("--include-path", action="append", default=[], help="folder of task configs")
    one.add_argument("--only-include-path", action="store_true", help="do not look through the harness's own tasks (seconds less)")
    one.add_argument("--limit", type=limit, help="documents of each task, or a share of them below 1")
    one.add_argument("--num-fewshot", type=int)
    one.add_argument("--seeds", default=[0, 1234, 1234, 1234], type=lambda text: [int(seed) for seed in text.split(",")],
                     help="of random, numpy, torch, few-shot (default 0,1234,1234,1234)")
    one.add_argument("--apply-chat-template", action="store_true", help="write chats as messages; the model's own encoding is applied in the run")
    one.add_argument("--fewshot-as-multiturn", action=argparse.BooleanOptionalAction, default=True)
    one.add_argument("--system-instruction")
    one.add_argument("--thinking", choices=["on", "off"], help="of chats; has to be said")
    one.add_argument("--effort", help="of thinking: low, medium, high, max")
    one.add_argument("--think-end", help="marker behind which the answer begins, for prompts that are no chats")
    one.add_argument("--add-bos", action="store_true", help="BOS before contexts that do not begin with it (the harness scores without)")
    one.add_argument("--gen-kwargs", type=json.loads, help="JSON object laid over the generation_kwargs of tasks")
    one.add_argument("--metadata", type=json.loads, help="JSON object for tasks that want one")
    one.add_argument("--bootstrap-iters", type=int, default=100000)
    one.add_argument("--confirm-run-unsafe-code", action="store_true")
    two = commands.add_parser("score", help="give the answers of a run to the harness")
    two.add_argument("--export", required=True, help="folder that export wrote")
    two.add_argument("--run", required=True, help="run folder of bathys eval")
    two.add_argument("--output", help="results and samples as the harness gives them, JSON")
    two.add_argument("--bootstrap-iters", type=int)
    two.add_argument("--allow-missing", action="store_true", help="score what has no answer as wrong, and say how much that is")
    two.add_argument("--other-version", action="store_true", help="although another version of the harness exported")
    return parser.parse_args(words)


def main(words=None):
    options = parse(words)
    try:
        (export if options.command == "export" else score)(options)
    except (BridgeError, FileNotFoundError) as error:
        print(f"bathys: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
