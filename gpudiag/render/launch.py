"""A launch plan as text: the command that starts the server, and why each part of it is there."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from msgspec.structs import replace

from gpudiag.engines.words import is_option
from gpudiag.model.doctor import DoctorReport
from gpudiag.model.run import MODEL, RUN_VARIABLE, LaunchPlan, Setting
from gpudiag.render.canvas import Canvas
from gpudiag.render.plain import ascii_only, clean
from gpudiag.render.safe import safe
from gpudiag.render.style import BOLD, CONFIDENCES, DIM, PLAIN, SEVERITIES


def command(plan: LaunchPlan, path: str = "") -> str:
    """A shell command that starts the server just so, directories and environment included; it can be pasted.

    `path` is the PATH that the plan adds to: it stays a variable, since it is long and no part of the plan.
    """
    lines = []
    if plan.directories:
        made = " ".join(shlex.quote(f"{plan.run_directory}/{name}") for name in plan.directories)
        lines.append(f"mkdir -p {made} &&")
    start = ["env"] if plan.environment else []
    start += [f"  {_assignment(name, value, path)}" for name, value in plan.environment]
    start += [f"  {line}" if plan.environment else line for line in _argument_lines(plan.argv)]
    return "\n".join([*lines, " \\\n".join(start)]) + "\n"


def _assignment(name: str, value: str, path: str) -> str:
    before, found, after = value.partition(path) if name == "PATH" and path else (value, "", "")
    if not found:
        return shlex.quote(f"{name}={value}")
    return f'{name}={shlex.quote(before) if before else ""}"$PATH"{shlex.quote(after) if after else ""}'


def _argument_lines(argv: Sequence[str]) -> list[str]:
    """The program and its first words on one line, then a line an option with its values."""
    lines: list[list[str]] = [[]]
    seen_options = False
    for word in argv:
        # -m belongs to the interpreter.
        if is_option(word) and (seen_options or word != "-m"):
            seen_options = True
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return [("" if number == 0 else "  ") + " ".join(line) for number, line in enumerate(lines)]


def explanation(plan: LaunchPlan, path: str = "", *, width: int = 80, color: bool = False, plain: bool = False) -> str:
    """Every argument and variable with its reason and who says so, in groups that one switch leaves out."""
    canvas = Canvas(width, color=color, plain=plain)
    title = f"{plan.engine} {plan.version or '(version not known)'}"
    canvas.ends([(clean(title), BOLD), (f"  profile {clean(plan.profile)}" if plan.profile else "", PLAIN)], (plan.run_id, DIM))
    canvas.paragraph([("RUN is ", DIM)], _shown(plan.run_directory, plain), DIM)
    for switch, settings in _groups(plan.settings).items():
        canvas.rule()
        if switch:
            canvas.row((f"{switch} leaves out:", DIM))
        for setting in settings:
            _setting(canvas, _short(setting, plan, path), plain)
    if plan.notes:
        canvas.rule()
    for note in plan.notes:
        canvas.paragraph([("! ", PLAIN)], _shown(note, plain))
    return canvas.text()


def _groups(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    groups: dict[str, list[Setting]] = {"": []}
    for setting in settings:
        groups.setdefault(setting.switch or "", []).append(setting)
    return {switch: group for switch, group in groups.items() if group}


def _short(setting: Setting, plan: LaunchPlan, path: str) -> Setting:
    """The same with what is long and said elsewhere as a variable."""
    value = setting.value.replace(plan.run_directory, "RUN") if setting.name != RUN_VARIABLE else setting.value
    return replace(setting, value=value.replace(path, "$PATH") if path and setting.name == "PATH" else value)


def _setting(canvas: Canvas, setting: Setting, plain: bool) -> None:
    is_option_ = setting.name.startswith("-") or setting.name == MODEL
    text = f"{setting.name}{' ' if is_option_ else '='}{setting.value}" if setting.value else setting.name
    canvas.paragraph([("  ", PLAIN)], _shown(text, plain), BOLD)
    canvas.paragraph([("      ", DIM)], _shown(f"{setting.why} ({setting.source})", plain), DIM)


def _shown(words: str, plain: bool) -> str:
    cleaned = clean(words)
    return ascii_only(cleaned) if plain else cleaned


def findings(report: DoctorReport, *, width: int = 80, color: bool = False, plain: bool = False) -> str:
    """What the checks before a start found: errors and warnings with their first step, the rest counted; one line if nothing."""
    harmless = safe(report, plain=plain)
    canvas = Canvas(width, color=color, plain=plain)
    worth = [f for f in harmless.findings if f.severity != "info"]
    for finding in worth:
        look = SEVERITIES[finding.severity]
        right = (finding.confidence, CONFIDENCES[finding.confidence])
        canvas.paragraph([(f"{look.mark(plain=plain)} {finding.code}  ", look.color)], finding.title, right=right)
        for step in finding.next_steps[:1]:
            canvas.paragraph([(f"    {canvas.lines.arrow} ", DIM)], step)
    canvas.paragraph([("checked: ", DIM)], _counted(report), DIM)
    return canvas.text()


def _counted(report: DoctorReport) -> str:
    made = sum(c.status in ("ok", "finding") for c in report.checks)
    unknown = sum(c.status == "unknown" for c in report.checks)
    notes = sum(f.severity == "info" for f in report.findings)
    parts = [f"{made} checks in {report.cost.wall_s:.1f} s"]
    parts += [f"{unknown} not known"] if unknown else []
    parts += [f"{notes} notes"] if notes else []
    return ", ".join(parts) + ("; gpudiag doctor shows them" if unknown or notes else "")


def listing(profiles: Sequence[tuple[str, str, str]], *, width: int = 80, color: bool = False, plain: bool = False) -> str:
    """Every profile: its name, what it is for, where it lies."""
    canvas = Canvas(width, color=color, plain=plain)
    for name, summary, place in profiles:
        canvas.paragraph([(f"{_shown(name, plain):<14} ", BOLD)], _shown(f"{summary} ({place})", plain))
    return canvas.text()
