"""A log beside a look: which of the two leads."""

from __future__ import annotations

import msgspec
import pytest

from gpudiag.model.log import ServerLog
from gpudiag.model.report import Report
from gpudiag.rules.log_beside import with_log
from tests.logs.support import facts_of, raw
from tests.render.samples import SAMPLES

AT = 1000.0


def log(name: str, *, silent_s: float = 41.0) -> ServerLog:
    return ServerLog(root_pid=1, facts=facts_of(raw(name)), written_at=AT - silent_s)


def joined(sample: str, name: str) -> Report:
    return with_log(SAMPLES[sample](), log(name), at=AT)


def test_it_leads_where_the_processes_say_nothing() -> None:
    report = joined("insufficient", "vllm_raise_rank1")
    assert report.verdict.code == report.findings[0].code == "GPD220"
    assert report.target is not None
    assert report.target.state == "crashed"


def test_a_hang_that_the_processes_prove_stays_the_verdict() -> None:
    before = SAMPLES["stale-lock-4"]()
    report = joined("stale-lock-4", "vllm_raise_rank1")
    assert report.verdict == before.verdict
    assert [f.code for f in report.findings] == [*(f.code for f in before.findings), "GPD220"]


def test_the_log_says_why_a_rank_is_gone() -> None:
    live = SAMPLES["stale-lock-4"]()
    gone = msgspec.structs.replace(live, verdict=msgspec.structs.replace(live.verdict, code="GPD304", name="rank-dead"))
    assert with_log(gone, log("vllm_raise_rank1"), at=AT).verdict.code == "GPD220"
    assert with_log(gone, log("sglang_syntax_fallback"), at=AT).verdict.code == "GPD304"


@pytest.mark.parametrize("sample", ["healthy", "idle"])
def test_a_server_that_lives_did_not_die_of_its_log(sample: str) -> None:
    before = SAMPLES[sample]()
    report = joined(sample, "vllm_raise_rank1")
    assert (report.verdict, report.findings) == (before.verdict, before.findings)
    assert "GPD706" in [f.code for f in joined(sample, "sglang_syntax_fallback").findings]


def test_the_silence_of_the_log_is_known() -> None:
    report = joined("stale-lock-4", "vllm_start")
    assert report.target is not None
    assert report.target.log_silent_s == 41.0


def test_a_log_that_cannot_be_read_is_told() -> None:
    report = with_log(SAMPLES["stale-lock-4"](), ServerLog(root_pid=1, reason="it is a pipe", help="gpudiag explain FILE"))
    told = report.not_read[-1]
    assert (told.source, told.reason, told.help) == ("log", "it is a pipe", "gpudiag explain FILE")


def test_what_both_say_stands_once() -> None:
    once = joined("insufficient", "vllm_raise_rank1")
    again = with_log(once, log("vllm_raise_rank1"), at=AT)
    assert [f.code for f in again.findings] == [f.code for f in once.findings]
