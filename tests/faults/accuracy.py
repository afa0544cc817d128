"""How often gpudiag is right: every entry of the corpus, several times, through the commands that a person types.

    python -m tests.faults.accuracy [--runs 3] [--only WORD] [--recorded] [--json]

Prints a table and each answer that was not right; exits 1 if code or culprit are right less often than 95 in 100, if an
error was said of a look-alike, or if a screen says otherwise than its report. Names, sizes, victims, the order of lists and the
noise around logs differ from run to run. The seed of a run is printed; --seed repeats it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.faults.asking import no_answer, printed
from tests.faults.case import REAL, Answer, Fault, Variation
from tests.faults.registry import FAULTS, LOOK_ALIKES, SCREENS, UNDECIDED
from tests.programs.harness import torch_python

ENOUGH = 0.95
CONFIDENCES = ("proven", "strong", "weak")


class NotPlantedError(Exception):
    """An entry could not be staged, so that gpudiag was not asked."""


def ask(fault: Fault, number: int, rng: random.Random) -> Answer:
    """Plant it, ask gpudiag, and end what was started. That no report comes is an answer, and a wrong one.

    Raises NotPlantedError.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpudiag-fault-")))
        try:
            staged = stack.enter_context(fault.stage(Variation(number, rng, directory)))
        except Exception as error:
            raise NotPlantedError(f"{fault.name}: {str(error).partition(chr(10))[0]}") from error
        began = time.perf_counter()
        try:
            report = (staged.ask or printed)(staged.arguments)
        except Exception as error:  # noqa: BLE001  an hour of other answers is not to be lost by it
            report = no_answer(error)
        return Answer(fault, staged, report, time.perf_counter() - began)


def can_run(fault: Fault) -> bool:
    match fault.needs:
        case "torch":
            return torch_python() is not None
        case "fuse":
            return os.geteuid() == 0 and os.access("/dev/fuse", os.W_OK)
    return True


def collect(faults: Sequence[Fault], runs: int, seed: int, jobs: int = 1) -> Iterator[Answer | NotPlantedError]:
    """All answers, run by run; what could not be planted is tried once more. With several jobs the times say less."""

    def one(turn: tuple[int, Fault]) -> Answer | NotPlantedError:
        number, fault = turn
        for attempt in ("", "/again"):
            try:
                return ask(fault, number, random.Random(f"{seed}/{number}/{fault.name}{attempt}"))  # noqa: S311
            except NotPlantedError as error:
                failed = error
        return failed

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, [(number, fault) for number in range(runs) for fault in faults])


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def figures(answers: Sequence[Answer], skipped: Sequence[str], runs: int, seed: int) -> dict[str, Any]:
    """Everything that the table shows, and every answer that was not right."""
    faults = [a for a in answers if a.fault in FAULTS]
    return {
        "runs": runs,
        "seed": seed,
        "skipped": list(skipped),
        "faults": {"entries": len({a.fault.name for a in faults}), "codes": len({a.fault.code for a in faults})}
        | {"real": len({a.fault.name for a in faults if a.fault.ground in REAL})}
        | rates(faults),
        "grounds": {
            ground: {"entries": len({a.fault.name for a in faults if a.fault.ground == ground})}
            | rates([a for a in faults if a.fault.ground == ground])
            for ground in dict.fromkeys(a.fault.ground for a in faults)
        },
        "confidence": {level: rates([a for a in faults if a.report["verdict"]["confidence"] == level]) for level in CONFIDENCES},
        **{name: quietness([a for a in answers if a.fault in group]) for name, group in QUIET.items()},
        "took_s": {how: times([a.took_s for a in answers if way(a) == how]) for how in WAYS},
        "wrong": [told(a) for a in answers if not a.is_right],
    }


WAYS = ("attach, two looks 1 s apart", "explain, doctor and drafter check")
QUIET = {"look_alikes": LOOK_ALIKES, "undecided": UNDECIDED, "screens": SCREENS}


def way(answer: Answer) -> str | None:
    """Whose times it belongs to: those of a start, of a measurement, of training and of a screen say nothing here."""
    match answer.staged.arguments[:2]:
        case ("attach", *_):
            return WAYS[0]
        case ("explain" | "doctor", *_) | ("drafter", "check") if answer.staged.ask is None:
            return WAYS[1]
    return None


def quietness(answers: Sequence[Answer]) -> dict[str, Any]:
    return {
        "entries": len({a.fault.name for a in answers}),
        "answers": len(answers),
        "false_errors": sum(a.is_false_alarm for a in answers),
    }


def rates(answers: Sequence[Answer]) -> dict[str, Any]:
    total = len(answers)
    return {
        "answers": total,
        "code": share(sum(a.code_is_right for a in answers), total),
        "culprit": share(sum(a.culprit_is_right for a in answers), total),
        "abstained": share(sum(a.abstained for a in answers), total),
    }


def times(seconds: Sequence[float]) -> dict[str, float] | None:
    if not seconds:
        return None
    ordered = sorted(seconds)
    return {"median": statistics.median(ordered), "p95": ordered[int(0.95 * (len(ordered) - 1))], "most": ordered[-1]}


def told(answer: Answer) -> dict[str, Any]:
    verdict = answer.report["verdict"]
    said = {key: verdict[key] for key in ("status", "code", "confidence", "title")}
    who = [{k: v for k, v in c.items() if v is not None} for c in verdict["culprits"]]
    wanted = {k: str(v) for k, v in answer.staged.culprit._asdict().items() if v not in (None, False)}
    return {"name": answer.fault.name, "planted": answer.fault.planted, "code": answer.fault.code, "culprit": wanted} | {
        "said": said | {"culprits": who}
    }


SAID = {
    "look_alikes": ("healthy, idle or slow", "errors said"),
    "undecided": ("cannot be known", "errors said"),
    "screens": ("screen beside report", "differ"),
}


def percent(value: float | None) -> str:
    return "    -" if value is None else f"{100 * value:5.1f}"


def table(found: dict[str, Any]) -> str:
    faults = found["faults"]
    lines = [
        (
            f"{faults['entries']} faults of {faults['codes']} codes, {faults['real']} on real engines or GPUs; "
            f"{found['runs']} runs, seed {found['seed']}"
        ),
        "",
        f"{'':24} entries answers  code %  culprit %  abstained %",
    ]

    def row(name: str, rated: dict[str, Any], entries: object = "") -> str:
        shares = f"{percent(rated['code']):>7} {percent(rated['culprit']):>10} {percent(rated['abstained']):>12}"
        return f"{name:24} {entries:>7} {rated['answers']:>7} {shares}"

    lines += [row(ground, rated, rated["entries"]) for ground, rated in found["grounds"].items()]
    lines += [row("all faults", faults, faults["entries"]), ""]
    lines += [row(f"said to be {level}", rated) for level, rated in found["confidence"].items()]
    lines.append("")
    for key, (name, wrong) in SAID.items():
        group = found[key]
        lines.append(f"{name:24} {group['entries']:>7} {group['answers']:>7}   {wrong}: {group['false_errors']}")
    lines.append("")
    for how, spent in found["took_s"].items():
        if spent:
            lines.append(f"{how}: median {spent['median']:.2f} s, p95 {spent['p95']:.2f} s, most {spent['most']:.2f} s")
    lines += [f"not run here: {name}" for name in found["skipped"]]
    lines += [f"not planted: {why}" for why in found.get("not_planted", ())]
    lines += [f"not right: {json.dumps(wrong)}" for wrong in found["wrong"]]
    return "\n".join(lines)


def passed(found: dict[str, Any]) -> bool:
    faults = found["faults"]
    enough = all(faults[key] is None or faults[key] >= ENOUGH for key in ("code", "culprit"))
    return enough and not any(found[key]["false_errors"] for key in QUIET) and not found.get("not_planted")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="", help="entries whose name or code holds this")
    parser.add_argument("--jobs", type=int, default=1, help="entries at a time; with more than one, times say less")
    parser.add_argument("--recorded", action="store_true", help="only entries for which no process is started")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000
    wanted = [
        fault
        for fault in (*FAULTS, *LOOK_ALIKES, *UNDECIDED, *SCREENS)
        if (options.only in fault.name or options.only == fault.code) and not (options.recorded and fault.live)
    ]
    skipped = [fault.name for fault in wanted if not can_run(fault)]
    print(f"seed {seed}", file=sys.stderr)
    answers, unplanted = [], []
    for answer in collect([f for f in wanted if can_run(f)], options.runs, seed, options.jobs):
        if isinstance(answer, NotPlantedError):
            unplanted.append(str(answer))
            continue
        answers.append(answer)
        if not answer.is_right:
            print(f"not right: {answer.fault.name}: {told(answer)['said']}", file=sys.stderr, flush=True)
    found = figures(answers, skipped, options.runs, seed) | {"not_planted": unplanted}
    print(json.dumps(found, indent=1) if options.json else table(found))
    return 0 if passed(found) else 1


if __name__ == "__main__":
    sys.exit(main())
