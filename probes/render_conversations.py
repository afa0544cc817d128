"""Renders conversations with a model's own chat template and counts the tokens of their answers. Prints counts, no text of them.

needs: site (transformers)
timeout: 120
writes: none

Argument: a request as JSON: `target`, a model directory, and `rows`, a file with one JSON object a line: `line`, `turns`
(role, content, reasoning), and, where the row has them, `rendered` text and `ids`; `closing`, tags that end reasoning in a text.
"""

import collections
import contextlib
import io
import json
import os
import sys

SCHEMA = "gpudiag.probe/1"
MAX_FILE = 256 << 20
MAX_PLACES = 5


def said(error):
    return f"{type(error).__name__}: {str(error)[:300]}"


class Answer:
    """Counts by name, with the first few lines of each."""

    def __init__(self):
        self.counts = collections.Counter()
        self.lines = {}
        self.errors = []
        self.tokens = {"answer": collections.Counter(), "reasoning": collections.Counter()}
        self.lengths = []

    def add(self, name, line):
        self.counts[name] += 1
        places = self.lines.setdefault(name, [])
        if len(places) < MAX_PLACES:
            places.append(line)


def message(turn):
    """A turn as chat templates read it."""
    one = {"role": turn["role"], "content": turn["content"]}
    if turn.get("reasoning"):
        one["reasoning_content"] = turn["reasoning"]
    return one


def look(row, tokenizer, answer, closing):
    turns, line = row["turns"], row["line"]
    for turn in turns:
        if turn["role"] == "assistant":
            for part, text in (("answer", turn["content"]), ("reasoning", turn.get("reasoning"))):
                if text:
                    answer.tokens[part].update(tokenizer(text, add_special_tokens=False)["input_ids"])
    if not turns or not tokenizer.chat_template:
        return
    answer.add("rows", line)
    try:
        text = tokenizer.apply_chat_template([message(t) for t in turns], tokenize=False)
    except Exception as error:
        answer.add("refused", line)
        if len(answer.errors) < MAX_PLACES:
            answer.errors.append(said(error))
        return
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    answer.lengths.append(len(ids))
    compare(row, text, list(ids), answer, closing)


def parts(turn, closing):
    """Reasoning and answer of a turn, whether they stand apart or in one text with tags. `closing` are the tags that end one."""
    content, reasoning = turn["content"].strip(), (turn.get("reasoning") or "").strip()
    for tag in closing:
        if not reasoning and tag in content:
            before, _, content = content.rpartition(tag)
            reasoning = before.partition(">")[2].strip() if before.startswith("<") else before.strip()
    return reasoning, content.strip()


def compare(row, text, ids, answer, closing):
    """The template's text and tokens with those of the row, and what of the answers the template leaves out."""
    turns, line = row["turns"], row["line"]
    said_last = [t for t in turns if t["role"] == "assistant"][-1:]
    for turn in turns:
        if turn["role"] != "assistant":
            continue
        reasoning, content = parts(turn, closing)
        answer.add("with reasoning" if reasoning else "plain", line)
        if reasoning and reasoning not in text:
            answer.add("reasoning left out, last" if turn in said_last else "reasoning left out, earlier", line)
        if content and content not in text:
            answer.add("answer changed", line)
    if row.get("rendered") is not None:
        answer.add("with text", line)
        if row["rendered"] != text:
            answer.add("other ends" if row["rendered"].strip() == text.strip() else "other text", line)
    if row.get("ids") is not None:
        answer.add("with tokens", line)
        if row["ids"] != ids:
            short = row["ids"] == ids[: len(row["ids"])]
            answer.add("cut tokens" if short else "other tokens", line)


def main():
    request = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    answer, failed, template, printed = Answer(), "", False, io.StringIO()
    pieces = {}
    with contextlib.redirect_stdout(printed):
        try:
            os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
            import transformers

            tokenizer = transformers.AutoTokenizer.from_pretrained(
                request["target"], trust_remote_code=False, local_files_only=True
            )
            template = bool(tokenizer.chat_template)
            with open(request["rows"], encoding="utf-8") as file:
                for line in file.read(MAX_FILE).splitlines():
                    look(json.loads(line), tokenizer, answer, request.get("closing") or [])
            counted = {i for counter in answer.tokens.values() for i in counter}
            pieces = {i: str(p)[:40] for i, p in zip(counted, tokenizer.convert_ids_to_tokens(list(counted)))}
        except Exception as error:
            failed = said(error)
    found = {
        "schema": SCHEMA,
        "probe": "render_conversations",
        "ok": not failed,
        "failed": failed,
        "template": template,
        "counts": dict(answer.counts),
        "lines": answer.lines,
        "errors": answer.errors,
        "lengths": sorted(answer.lengths),
        "tokens": {part: {str(i): n for i, n in counter.items()} for part, counter in answer.tokens.items()},
        "pieces": {str(i): p for i, p in pieces.items()},
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
