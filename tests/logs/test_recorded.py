"""Logs that real servers wrote: vLLM 0.24 and 0.32, SGLang 0.5.17 and 0.5.23, and torch on two H200s.

Each must get its code, file, line and rank, alone and buried in what a healthy server writes.
"""

from __future__ import annotations

import gzip
import io
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from gpudiag.logs.facts import read_facts, read_stream
from gpudiag.model.report import Report
from gpudiag.rules.log_verdict import explain_log
from tests.logs.support import DATA, NOISE_LINES, buried, facts_of, noise, raw, report_of


class Case(NamedTuple):
    name: str
    status: str
    code: str | None
    file: str | None
    line: int | None
    rank: int | None
    state: str


CASES = [
    Case("sglang_architecture", "finding", "GPD213", "hf_transformers/config.py", 228, None, "crashed"),
    Case("sglang_bad_attr", "finding", "GPD706", "models/llama.py", None, None, "serving"),
    Case("sglang_eagle3_backend", "finding", "GPD705", "speculative/draft_utils.py", 64, 0, "crashed"),
    Case("sglang_gpu_sigkill_rank1", "finding", "GPD304", None, None, 1, "crashed"),
    Case("sglang_healthy", "healthy", None, None, None, None, "serving"),
    Case("sglang_missing_path", "finding", "GPD211", "hf_transformers/config.py", 162, None, "crashed"),
    Case("sglang_no_sgl_kernel", "finding", "GPD202", "kvcache/cache_move.py", 10, None, "crashed"),
    Case("sglang_no_torchvision", "finding", "GPD202", "multimodal/internvl_utils.py", 5, None, "crashed"),
    Case("sglang_no_weights", "finding", "GPD224", "model_loader/loader.py", 580, 0, "crashed"),
    Case("sglang_numa", "finding", "GPD225", "utils/numa_utils.py", 463, 1, "crashed"),
    Case("sglang_port", "finding", "GPD216", None, None, None, "crashed"),
    Case("sglang_raise_rank1", "finding", "GPD220", "models/llama.py", 612, 1, "crashed"),
    Case("sglang_scheduler_syntax", "finding", "GPD201", "managers/scheduler.py", 56, None, "crashed"),
    Case("sglang_sigbus_tp1", "finding", "GPD217", "utils/common.py", 2730, 1, "crashed"),
    Case("sglang_sigkill_tp1", "finding", "GPD304", None, None, 1, "crashed"),
    Case("sglang_sigsegv_tp1", "finding", "GPD217", "utils/common.py", 2730, 1, "crashed"),
    Case("sglang_sigstop_tp1", "healthy", None, None, None, None, "serving"),
    Case("sglang_soft_watchdog", "healthy", None, None, None, None, "serving"),
    Case("sglang_start", "healthy", None, None, None, None, "serving"),
    Case("sglang_syntax_fallback", "finding", "GPD706", "models/llama.py", 68, None, "serving"),
    Case("sglang_triton_kernel", "finding", "GPD223", "attention/decode_attention.py", 340, None, "crashed"),
    Case("sglang_truncated", "finding", "GPD212", "model_loader/weight_utils.py", 1354, 1, "crashed"),
    Case("sglang_unknown_flag", "finding", "GPD701", None, None, None, "crashed"),
    Case("sglang_worker_missing_module", "finding", "GPD202", "model_executor/model_runner.py", 26, 0, "crashed"),
    Case("vllm_architecture", "finding", "GPD213", "engine/arg_utils.py", 1955, None, "crashed"),
    Case("vllm_bad_name", "finding", "GPD205", "worker/cpu_worker.py", 23, 0, "crashed"),
    Case("vllm_d2t", "finding", "GPD215", "models/utils.py", 448, 1, "crashed"),
    Case("vllm_devshm", "finding", "GPD209", "device_communicators/shm_broadcast.py", 253, None, "crashed"),
    Case("vllm_drafter_hidden", "finding", "GPD215", "layers/linear.py", 405, 0, "crashed"),
    Case("vllm_drafter_renamed", "finding", "GPD215", "models/utils.py", 448, 1, "crashed"),
    Case("vllm_eagle3_refused", "finding", "GPD214", "worker/gpu_model_runner.py", 5235, 1, "crashed"),
    Case("vllm_execute_timeout", "finding", "GPD703", None, None, None, "crashed"),
    Case("vllm_exit_worker", "insufficient", None, None, None, None, "crashed"),
    Case("vllm_flag_value", "finding", "GPD221", None, None, None, "crashed"),
    Case("vllm_gpu_sigkill_rank1", "finding", "GPD210", None, None, 1, "crashed"),
    Case("vllm_heads", "finding", "GPD220", "llama/configuration_llama.py", 97, None, "crashed"),
    Case("vllm_healthy", "healthy", None, None, None, None, "serving"),
    Case("vllm_kv", "finding", "GPD222", "core/kv_cache_utils.py", 1030, None, "crashed"),
    Case("vllm_kvspace", "finding", "GPD222", "worker/cpu_worker.py", 219, 0, "crashed"),
    Case("vllm_libnuma", "finding", "GPD203", None, None, None, "crashed"),
    Case("vllm_missing_module", "finding", "GPD202", "worker/cpu_worker.py", 13, 1, "crashed"),
    Case("vllm_missing_path", "finding", "GPD211", "transformers_utils/repo_utils.py", 301, None, "crashed"),
    Case("vllm_model_syntax", "finding", "GPD201", "models/llama.py", 61, None, "crashed"),
    Case("vllm_no_weights", "finding", "GPD224", "model_loader/default_loader.py", 259, 0, "crashed"),
    Case("vllm_numa", "finding", "GPD225", "utils/ompmultiprocessing.py", 217, None, "crashed"),
    Case("vllm_operator", "finding", "GPD226", "worker/cpu_worker.py", 70, 0, "crashed"),
    Case("vllm_port", "finding", "GPD216", "launchers/launcher.py", 348, None, "crashed"),
    Case("vllm_raise_rank1", "finding", "GPD220", "models/llama.py", 543, 1, "crashed"),
    Case("vllm_sigkill_rank1", "finding", "GPD210", None, None, 1, "crashed"),
    Case("vllm_sigsegv_tp1", "finding", "GPD217", None, None, 1, "crashed"),
    Case("vllm_sigstop_rank1", "insufficient", None, None, None, None, "hung"),
    Case("vllm_start", "healthy", None, None, None, None, "serving"),
    Case("vllm_truncated", "finding", "GPD212", "model_loader/weight_utils.py", 1208, 1, "crashed"),
    Case("vllm_undefined_symbol", "finding", "GPD204", None, None, None, "crashed"),
    Case("vllm_unknown_flag", "finding", "GPD701", None, None, None, "crashed"),
    Case("vllm_worker_syntax", "finding", "GPD201", "worker/cpu_worker.py", 13, 0, "crashed"),
]

FAULTS = [case for case in CASES if case.status == "finding" and case.code != "GPD703"]
"""703 is no cause: it says that the cause was lost, which a server that serves on afterwards has not."""


def engine_of(case: Case) -> str:
    return case.name.partition("_")[0]


def check(report: Report, case: Case) -> None:
    verdict = report.verdict
    assert (verdict.status, verdict.code) == (case.status, case.code), verdict.title
    if case.status != "finding":
        return
    culprit = verdict.culprits[0]
    assert (culprit.line, culprit.rank) == (case.line, case.rank)
    assert culprit.file is None if case.file is None else (culprit.file or "").endswith(case.file)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_first_cause_is_found(case: Case) -> None:
    report = report_of(facts_of(raw(case.name)))
    check(report, case)
    assert report.target is not None
    assert report.target.state == case.state


@pytest.mark.parametrize("case", FAULTS, ids=lambda c: c.name)
def test_noise_around_it_and_victims_after_it_change_nothing(case: Case) -> None:
    check(report_of(facts_of(buried(case.name, engine_of(case)))), case)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_noise_alone_is_healthy(engine: str) -> None:
    lines = noise(engine)
    report = report_of(facts_of(b"".join(lines)))
    assert len(lines) == NOISE_LINES
    assert report.verdict.status == "healthy"
    assert not report.findings


def test_the_recordings_cover_what_they_should() -> None:
    assert len(FAULTS) >= 20
    assert len({case.code for case in FAULTS}) >= 15
    ranked = {case.name for case in FAULTS if case.rank is not None}
    assert len(ranked) >= 6


@pytest.mark.parametrize(
    ("folder", "code", "rank"),
    [
        ("armed_missing_rank", "GPD301", 1),
        ("armed_stuck_kernel", "GPD311", 0),
        ("armed_two_comms", "GPD303", 0),
        ("armed_graph_missing", None, None),
        ("vllm_sigstop_rank1", "GPD305", 1),
        ("sglang_sigstop_rank1", "GPD305", 1),
        # The launcher saw a process of a server that was ending itself killed, as SGLang ends all of them.
        ("sglang_port_ended", "GPD216", None),
        ("vllm_sigstop_engine_core", "GPD305", None),
    ],
)
def test_dumps_beside_the_log_are_joined(folder: str, code: str | None, rank: int | None) -> None:
    verdict = report_of(read_facts([str(DATA / folder)])).verdict
    assert verdict.code == code, verdict.title
    if code is not None:
        assert verdict.culprits[0].rank == rank


def test_a_process_that_was_killed_before_its_server_ended_is_the_cause(tmp_path: Path) -> None:
    recorded = DATA / "sglang_port_ended"
    (tmp_path / "server.log").write_bytes((recorded / "server.log").read_bytes())
    (tmp_path / "events.log").write_text((recorded / "events.log").read_text().replace("03:40:47", "03:40:36"))
    verdict = report_of(read_facts([str(tmp_path)])).verdict
    assert verdict.code == "GPD210", verdict.title


def test_a_kernel_that_triton_does_not_compile_is_told_by_its_error() -> None:
    verdict = report_of(facts_of(raw("sglang_triton_kernel"))).verdict
    assert "'NoneType' object has no attribute 'type'" in verdict.title
    assert "nvcc" not in verdict.next_step


def test_a_file_that_does_not_parse_is_told_of_a_server_that_serves_without_it() -> None:
    fallback, syntax = report_of(facts_of(raw("sglang_syntax_fallback"))).findings
    assert (fallback.code, syntax.code) == ("GPD706", "GPD201")
    assert "models/llama.py, line 68" in syntax.title
    assert syntax.severity == "error"
    assert [f.code for f in report_of(facts_of(raw("sglang_bad_attr"))).findings] == ["GPD706"]


def test_a_recorder_that_saw_nothing_unfinished_is_not_enough() -> None:
    """Graph replay is invisible to the flight recorder, and a core dump that was asked for is no cause."""
    verdict = report_of(read_facts([str(DATA / "armed_graph_missing")])).verdict
    assert verdict.status == "insufficient"
    assert "attach" in verdict.next_step


@pytest.mark.parametrize("name", ["vllm_truncated", "sglang_truncated", "vllm_missing_module"])
def test_the_same_failure_of_another_rank_is_a_consequence(name: str) -> None:
    finding = report_of(facts_of(raw(name))).findings[0]
    assert any("fails the same way" in c.title for c in finding.consequences)


def test_an_undefined_symbol_is_traced_to_torch() -> None:
    verdict = report_of(facts_of(raw("vllm_undefined_symbol"))).verdict
    assert "torch has no c10::detail::torchCheckFeil" in verdict.title
    assert verdict.culprits[0].path is not None
    assert verdict.culprits[0].path.endswith("_C.abi3.so")


@pytest.mark.parametrize("name", ["vllm_undefined_symbol", "vllm_libnuma"])
def test_operators_that_a_lost_library_would_have_registered_are_a_consequence(name: str) -> None:
    (finding,) = report_of(facts_of(raw(name))).findings
    assert any("is not registered" in c.title for c in finding.consequences)


def test_a_log_that_stops_names_the_last_step_and_what_to_collect() -> None:
    """The log of a start cut off while the weights load."""
    lines = raw("sglang_start").splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if b"Load weight begin" in line)
    verdict = report_of(facts_of(b"".join(lines[: cut + 1]))).verdict
    assert verdict.status == "insufficient"
    assert "loading weights" in verdict.title
    assert "gpudiag attach" in verdict.next_step


def test_a_renamed_weight_of_the_target_is_not_the_drafters() -> None:
    """The same exception, without the loader of a drafter in its traceback."""
    text = (DATA / "vllm_drafter_renamed.log.gz").read_bytes()
    target = re.sub(rb"(?i)eagle3?|spec_decode|speculative|drafter|draft", b"model", gzip.decompress(text))
    facts = read_stream(io.BytesIO(target))
    assert explain_log(facts, version="test").verdict.code == "GPD220"
