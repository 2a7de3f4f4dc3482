# SPDX-License-Identifier: Apache-2.0
"""Requests of lm-evaluation-harness as lines of a bathys request file, and result lines as the answers it wants.

Nothing here knows the harness beyond what a request is: an object with request_type, args (a tuple), task_name, doc_id, idx, repeats.
"""

import hashlib
import json
import math

MESSAGES_MARK = "\x02bathys messages\x03"  # before a chat's JSON, where the harness expects a string
URLS = {kind: "bathys:" + kind for kind in ("loglikelihood", "loglikelihood_rolling", "generate_until")}
LENGTH_NAMES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
TAKEN_OVER = {"until", "do_sample", "temperature", "top_p", "seed", *LENGTH_NAMES}
# Settings of other engines that change nothing with these values.
NEUTRAL = {"top_k": (None, 0, -1), "min_p": (None, 0), "typical_p": (None, 1), "num_beams": (None, 1), "repetition_penalty": (None, 1),
           "presence_penalty": (None, 0), "frequency_penalty": (None, 0), "use_cache": (None, True, False), "num_return_sequences": (None, 1)}


class BridgeError(Exception):
    """What a person has to correct; its text is the whole story."""


def request_hash(request):
    """What a request is, whatever task and place it has."""
    text = json.dumps([request.request_type, request.args], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def mark_messages(messages, add_generation_prompt=True):
    """A chat as the string that apply_chat_template has to return; without a generation prompt the last turn is to be continued."""
    messages = [dict(message) for message in messages]
    if not add_generation_prompt and messages and messages[-1]["role"] == "assistant":
        messages[-1]["prefix"] = True
    return MESSAGES_MARK + json.dumps(messages, ensure_ascii=False)


class Chat:
    """How chats are encoded: written into every line with messages, so that no default decides what is measured."""

    def __init__(self, thinking=True, effort=None):
        self.thinking, self.effort = thinking, effort

    def members(self):
        return {"thinking": self.thinking, **({"effort": self.effort} if self.effort is not None else {})}


def _context(text, chat, kind):
    if not text.startswith(MESSAGES_MARK):
        if MESSAGES_MARK in text:
            raise BridgeError("a task joins a chat's prompt with other text; it cannot be exported as messages, run it without the chat template")
        return {"context": text}
    if kind == "loglikelihood" and chat.thinking:
        raise BridgeError("with thinking on, choices would be scored inside the reasoning; export scored tasks with --thinking off")
    return {"messages": json.loads(text[len(MESSAGES_MARK):]), **chat.members()}


def _generation(settings, where):
    body = {}
    for name, value in dict(settings).items():
        if name in TAKEN_OVER:
            if value is not None:
                body[name] = value
        elif name not in NEUTRAL or value not in NEUTRAL[name]:
            raise BridgeError(f"{where} sets {name} = {value!r}, which bathys does not have; change the task's generation_kwargs")
    if body.get("do_sample") is False or not body.get("temperature"):
        body.pop("top_p", None)  # of a greedy choice it changes nothing, and 0 is no value of it
    for name in LENGTH_NAMES:
        if isinstance(body.get(name), float) and body[name].is_integer():
            body[name] = int(body[name])
    return body


def _line(group, body):
    first = group[0]
    hashes = [request_hash(request) for request in group]
    name = hashes[0] if len(group) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
    place = f"{first.task_name}/{first.doc_id}/{first.idx}"
    if len(place.encode()) > 400:
        place = hashlib.sha256(place.encode()).hexdigest()
    return {"custom_id": f"{place}#{name[:32]}", "method": "POST", "url": URLS[first.request_type],
            "body": {**body, "task": first.task_name},
            "meta": {"task": first.task_name, "doc_id": first.doc_id, "hashes": hashes}}


def _body(group, chat, common):
    first, kind = group[0], group[0].request_type
    where = f"task {first.task_name}, document {first.doc_id}"
    if kind not in URLS:
        raise BridgeError(f"{where}: requests of kind {kind} are not known")
    if len(first.args) > (1 if kind == "loglikelihood_rolling" else 2):
        raise BridgeError(f"{where}: images and sound are not supported")
    if kind == "loglikelihood_rolling":
        return {"text": first.args[0], **common}
    body = _context(first.args[0], chat, kind)
    body.update({key: value for key, value in common.items() if key != "add_bos" or "context" in body})
    if kind == "loglikelihood":
        return {**body, "continuations": [request.args[1] for request in group]}
    return {**body, **_generation(first.args[1], where), "repeats": int(first.repeats or 1)}


def lines_of(requests, chat, common=None):
    """One line for the scored continuations of one context of one document, one for every other request."""
    group = []
    for request in [*requests, None]:
        together = (group and request is not None and request.request_type == "loglikelihood" == group[0].request_type
                    and (request.task_name, request.doc_id) == (group[0].task_name, group[0].doc_id)
                    and request.args[0] == group[0].args[0] and len(request.args) == 2)
        if group and not together:
            yield _line(group, _body(group, chat, dict(common or {})))
            group = []
        if request is not None:
            group.append(request)


class Answered:
    """The answers to one request of the harness: one, or one for each repeat."""

    def __init__(self, answers, code=None):
        self.answers, self.code, self.given = answers, code, 0

    def next(self):
        self.given += 1
        return self.answers[(self.given - 1) % len(self.answers)]


MISSING = {"loglikelihood": (-math.inf, False), "loglikelihood_rolling": -math.inf, "generate_until": ""}


def answers_of(results):
    """{hash: [Answered, ...]} in the order of the lines of results.jsonl."""
    found, repeats = {}, {}
    for line in results:
        try:
            _take(line, found, repeats)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise BridgeError(f"a result is none that bathys writes ({type(error).__name__}: {error}): {str(line)[:200]}") from None
    return found


def _take(line, found, repeats):
    if not isinstance(line.get("meta"), dict) or "hashes" not in line["meta"]:
        raise BridgeError(f"{line.get('custom_id')}: the result has no hashes in its meta; this run is not one of exported requests")
    hashes, kind, ok = line["meta"]["hashes"], line["kind"], line["ok"]
    code = None if ok else line["error"]["code"]
    if kind == "generate_until" and line["repeat"] > 0:
        entry = repeats[line["custom_id"]]
        entry.answers.append(line["result"]["text"] if ok else MISSING[kind])
        entry.code = entry.code or code
        return
    for i, one in enumerate(hashes):
        answer = MISSING[kind]
        if ok and kind == "loglikelihood":
            answer = (line["result"]["logprob"][i], line["result"]["is_greedy"][i])
        elif ok:
            answer = line["result"]["logprob" if kind == "loglikelihood_rolling" else "text"]
        found.setdefault(one, []).append(Answered([answer], code))
        repeats[line["custom_id"]] = found[one][-1]


def assign(requests, answers):
    """Gives each request its answer: by hash, the n-th equal request the n-th answer. Returns ({id(request): Answered}, missing, extra)."""
    places, used, missing = {}, {}, []
    for request in requests:
        key = request_hash(request)
        n = used.get(key, 0)
        used[key] = n + 1
        entries = answers.get(key, [])
        if n < len(entries) and entries[n].code is None:
            places[id(request)] = entries[n]
        else:
            places[id(request)] = Answered([MISSING[request.request_type]])
            missing.append((request, entries[n].code if n < len(entries) else "not in the run"))
    extra = sum(max(0, len(entries) - used.get(key, 0)) for key, entries in answers.items())
    return places, missing, extra
