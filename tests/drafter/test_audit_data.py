"""Audit of conversations: each fault is counted with its lines, good rows are let alone, and no text of a row gets out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from gpudiag.cli import main
from gpudiag.drafter import audit_run, conversations
from gpudiag.drafter.audit_run import Beside
from gpudiag.model.audit import Audit
from tests.doctor import checkpoints
from tests.doctor.site import Site, make

SECRET = "the weather in Ulm"


def talk(number: int, answer: str | None = None, **rest: Any) -> dict[str, Any]:
    said = f"<think>{number} is even</think>So {number}." if answer is None else answer
    asked = {"role": "user", "content": f"{SECRET} on day {number}?"}
    return {"conversations": [asked, {"role": "assistant", "content": said, **rest}]}


def written(place: Path, rows: Iterable[Any]) -> Path:
    file = place / "rows.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return file


def audit(place: Path, rows: Iterable[Any], **beside: str) -> Audit:
    return audit_run.run(written(place, rows), Beside(**beside), sample=50)


def found(one: Audit) -> dict[str, tuple[str, int, tuple[str, ...]]]:
    return {item.name: (item.severity, item.count, item.places) for item in one.items}


GOOD = [talk(n) for n in range(20)]

FORMS: dict[str, Callable[[int], dict[str, Any]]] = {
    "SpecForge": talk,
    "ShareGPT": lambda n: {"conversations": [{"from": "human", "value": f"q{n}"}, {"from": "gpt", "value": f"a{n}"}]},
    "OpenAI": lambda n: {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": f"q{n}"}]},
            {"role": "assistant", "content": f"a{n}", "reasoning_content": "because"},
        ]
    },
    "prompt and response": lambda n: {"prompt": f"q{n}", "response": f"a{n}"},
    "already rendered": lambda n: {"text": f"<user>q{n}<assistant><think>t</think>a{n}"},
    "tokens": lambda n: {"input_ids": [5, 6, *range(n)], "loss_mask": [0, 1, *([1] * n)]},
    "tokens in a batch of one": lambda n: {"input_ids": [[5, 6, *range(n)]], "loss_mask": [[0, 1, *([1] * n)]]},
    "tools": lambda n: {
        "messages": [
            {"role": "user", "content": f"q{n}"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]},
            {"role": "tool", "content": "42"},
            {"role": "assistant", "content": f"a{n}"},
        ]
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_good_rows_in_every_form(tmp_path: Path, form: str) -> None:
    one = audit(tmp_path, [FORMS[form](n) for n in range(20)])
    assert (one.rows, found(one)) == (20, {})


FAULTS: dict[str, tuple[list[Any], str, str]] = {
    "no JSON": (["{nonsense"], "unreadable", "error"),
    "no object": (["[1]"], "unreadable", "error"),
    "nested too deep": (["[" * 100_000], "unreadable", "error"),
    "nothing to train on": ([{"id": 1}], "unreadable", "error"),
    "no answer": ([{"messages": [{"role": "user", "content": "x"}]}], "no answer", "error"),
    "an empty answer": ([talk(99, "")], "empty answer", "error"),
    "two questions in a row": (
        [
            {
                "messages": [
                    {"role": "user", "content": "a"},
                    {"role": "user", "content": "b"},
                    {"role": "assistant", "content": "c"},
                ]
            }
        ],
        "out of turn",
        "warning",
    ),
    "reasoning that never ends": ([talk(99, "<think>and then")], "never closed", "error"),
    "reasoning of nothing": ([talk(99, "<think>\n</think>yes")], "empty reasoning", "warning"),
    "reasoning twice": ([talk(99, "<think>a</think>b", reasoning_content="a")], "reasoning twice", "error"),
    "closed and not opened, unlike the others": ([talk(99, "a</think>b")], "never opened", "error"),
    "no reasoning, unlike the others": ([talk(97, "yes"), talk(98, "no"), talk(99, "well")], "without reasoning", "warning"),
    "cut off": ([talk(99, finish_reason="length")], "cut off", "warning"),
    "the same again": ([talk(3)], "row repeated", "warning"),
    "a mask of another length": ([{"input_ids": [1, 2, 3], "loss_mask": [0, 1]}], "mask length", "error"),
    "a mask of nothing": ([{"input_ids": [1, 2, 3], "loss_mask": [0, 0, 0]}], "nothing trained", "warning"),
    "a mask of everything": ([{"input_ids": [1, 2, 3], "loss_mask": [1, 1, 1]}], "all trained", "warning"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_each_fault_is_counted_where_it_is(tmp_path: Path, case: str) -> None:
    rows, name, severity = FAULTS[case]
    one = audit(tmp_path, [*GOOD, *rows])
    assert found(one) == {name: (severity, len(rows), tuple(str(21 + i) for i in range(len(rows))))}


def test_a_few_among_many_count_less(tmp_path: Path) -> None:
    assert found(audit(tmp_path, [*(talk(n) for n in range(300)), "{"]))["unreadable"] == ("warning", 1, ("301",))


def test_only_closing_tags_are_a_note_when_all_are_so(tmp_path: Path) -> None:
    one = audit(tmp_path, [talk(n, f"{n}</think>yes") for n in range(20)])
    assert {k: v[0] for k, v in found(one).items()} == {"never opened": "info"}


def test_rows_of_one_greatest_length_were_cut(tmp_path: Path) -> None:
    rows = [{"input_ids": [7, *range(min(n, 12))], "loss_mask": [0, *([1] * min(n, 12))]} for n in range(1, 20)]
    rows = [{**row, "input_ids": [*row["input_ids"][:-1], 100 + n]} for n, row in enumerate(rows)]
    assert set(found(audit(tmp_path, rows))) == {"same length"}


def test_a_line_without_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MAX_LINE", 1000)
    file = written(tmp_path, [talk(1), json.dumps(talk(2)) + " " * 5000, talk(3)])
    assert [(row.line, row.problem is None) for row in conversations.rows(file)] == [(1, True), (2, False), (3, True)]


TRANSFORMERS = '''
import json


class Tokenizer:
    """Words, numbered by their length; keeps the reasoning of the last answer alone, as Qwen3's template does."""

    def __init__(self, template):
        self.chat_template = template

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [min(len(word), 99) for word in text.split(" ")]}

    def convert_ids_to_tokens(self, ids):
        return ["x" * i for i in ids]

    def apply_chat_template(self, messages, tokenize):
        if any(m["role"] not in ("user", "assistant") for m in messages):
            raise ValueError("only user and assistant")
        last = messages[-1]
        told = []
        for one in messages:
            kept = one.get("reasoning_content", "") if one is last and self.chat_template != "drop" else ""
            told.append("<%s> %s %s" % (one["role"], kept, one["content"]))
        return " ".join(told)


class AutoTokenizer:
    @staticmethod
    def from_pretrained(directory, trust_remote_code, local_files_only):
        with open(directory + "/tokenizer_config.json") as file:
            return Tokenizer(json.load(file).get("chat_template"))
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    one = make(tmp_path_factory.mktemp("env") / "venv")
    one.install("transformers", "9.9.9", {"transformers/__init__.py": TRANSFORMERS})
    return one


def beside(place: Path, site: Site, template: str | None = "keep") -> dict[str, str]:
    target = checkpoints.target(place / "target")
    (target / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return {"target": str(target), "draft": str(checkpoints.drafter(place / "eagle3")), "python": site.python}


def apart(number: int, turns: int = 1) -> dict[str, Any]:
    def pair(i: int) -> tuple[dict[str, str], dict[str, str]]:
        said = {"role": "assistant", "content": "yes", "reasoning_content": f"because of {number} and {i}"}
        return {"role": "user", "content": f"q {number} {i}"}, said

    return {"messages": [m for i in range(turns) for m in pair(i)]}


def test_the_targets_own_template_and_vocabulary(tmp_path: Path, site: Site) -> None:
    same = {**talk(1, "yes"), "text": f"<user>  {SECRET} on day 1? <assistant>  yes"}
    other = {**talk(2, "no"), "text": f"[INST] {SECRET} on day 2? [/INST] no"}
    # Every answer is 'yes' or 'no', of 3 and 2 letters; the draft vocabulary has every fifth id.
    one = audit(tmp_path, [same, other], **beside(tmp_path, site))
    assert {k: v[1:] for k, v in found(one).items()} == {"other text": (1, ("2",))}
    facts = {fact.name: fact.value for fact in one.facts}
    assert facts["coverage, answer"].startswith("0.0% of 2 tokens; most missed: xxx x1")
    assert one.not_read == ()


def test_reasoning_that_the_template_drops(tmp_path: Path, site: Site) -> None:
    rows = [apart(1), apart(2, turns=3)]
    assert set(found(audit(tmp_path, rows, **beside(tmp_path, site)))) == {"reasoning left out, earlier"}
    (tmp_path / "b").mkdir()
    assert "reasoning left out, last" in found(audit(tmp_path, rows, **beside(tmp_path / "b", site, "drop")))


def test_rows_that_the_template_refuses_and_one_that_is_missing(tmp_path: Path, site: Site) -> None:
    odd = {
        "messages": [{"role": "critic", "content": "x"}, {"role": "user", "content": "y"}, {"role": "assistant", "content": "z"}]
    }
    one = audit(tmp_path, [odd], **beside(tmp_path, site))
    assert [(i.name, "only user and assistant" in i.title) for i in one.items] == [("refused", True)]
    (tmp_path / "b").mkdir()
    assert set(found(audit(tmp_path, GOOD, **beside(tmp_path / "b", site, None)))) == {"no template"}


def test_a_tokenizer_that_cannot_be_used_is_not_read(tmp_path: Path, site: Site) -> None:
    named = {**beside(tmp_path, site), "target": str(tmp_path)}
    one = audit(tmp_path, GOOD, **named)
    assert (found(one), [n.source for n in one.not_read]) == ({}, ["template and coverage"])


def test_the_command_its_codes_and_that_it_keeps_texts_to_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = str(written(tmp_path, GOOD))
    assert main.run(["drafter", "audit-data", good, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["rows"], told["items"]) == ("gpudiag.audit/1", 20, [])
    bad = str(written(tmp_path, [*GOOD, talk(99, "<think>and then")]))
    assert main.run(["drafter", "audit-data", bad]) == 1
    out = capsys.readouterr().out
    assert "line 21" in out
    assert SECRET not in out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert main.run(["drafter", "audit-data", bad, "--show", "--ascii"]) == 1
    assert SECRET in capsys.readouterr().out
    assert main.run(["drafter", "audit-data", str(tmp_path / "nowhere.jsonl")]) == 2
    (tmp_path / "empty.jsonl").touch()
    assert main.run(["drafter", "audit-data", str(tmp_path / "empty.jsonl")]) == 2
