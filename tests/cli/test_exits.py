"""Exit codes: 1 beats 5, 5 beats 0, and --fail-on decides what counts."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from gpudiag.cli.exits import FailOn, exit_code, worst
from gpudiag.errors import ExitCode
from gpudiag.model.report import Report
from tests.render.samples import SAMPLES


def warning_only() -> Report:
    report = SAMPLES["stopped-8"]()
    return msgspec.structs.replace(report, verdict=SAMPLES["healthy"]().verdict, findings=report.findings[1:])


@pytest.mark.parametrize(
    ("make", "fail_on", "partial", "code"),
    [
        (SAMPLES["stale-lock-4"], "error", False, 1),
        (SAMPLES["stale-lock-4"], "error", True, 1),
        (SAMPLES["stale-lock-4"], "never", False, 0),
        (SAMPLES["stale-lock-4"], "never", True, 5),
        (warning_only, "error", False, 0),
        (warning_only, "error", True, 5),
        (warning_only, "warning", False, 1),
        (SAMPLES["idle"], "error", False, 0),
        (SAMPLES["idle"], "warning", False, 0),
        (SAMPLES["idle"], "info", False, 1),
        (SAMPLES["healthy"], "info", False, 0),
        (SAMPLES["insufficient"], "error", True, 5),
        (SAMPLES["insufficient"], "error", False, 0),
    ],
)
def test_exit_code(make: Callable[[], Report], fail_on: FailOn, partial: bool, code: int) -> None:
    assert exit_code(make(), fail_on, partial) == code


def test_the_worst_of_several() -> None:
    assert worst([ExitCode.OK, ExitCode.PARTIAL, ExitCode.FINDINGS]) == ExitCode.FINDINGS
    assert worst([ExitCode.OK, ExitCode.PARTIAL]) == ExitCode.PARTIAL
    assert worst([ExitCode.OK]) == worst([]) == ExitCode.OK
