"""What is armed, under which names, and how each part is left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpudiag.launch import arming, host
from gpudiag.model.flags import FlagTable
from gpudiag.model.run import LaunchPlan
from tests.launch.requests import HOST, VARIABLES, planned, request, table, value

OWN = {
    "flight-recorder": {"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"},
    "nccl-ras": {"NCCL_RAS_ADDR"},
    "nccl-log": {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"},
    "faulthandler": {"PYTHONFAULTHANDLER"},
    "log": {"PYTHONUNBUFFERED"},
    "path": {"PATH"},
}


def armed(engine: str = "sglang", flags: FlagTable | str | None = "recorded", **changes: object) -> LaunchPlan:
    variables = changes.pop("variables", None)
    return planned(request(engine, **changes), Path("/nonexistent"), flags=flags, variables=variables)  # type: ignore[arg-type]


def names(plan: LaunchPlan) -> set[str]:
    return {name for name, _ in plan.environment}


def test_a_plan_says_where_what_was_armed_is_found() -> None:
    plan = armed()
    assert plan.ras_address == f"localhost:{HOST.ras_port}"
    assert plan.flight_pipe == "/runs/r1/flight/pipe_"
    assert plan.flight_dump == "/runs/r1/flight/rank_"
    assert set(plan.directories) == {"flight", "nccl"}
    assert plan.kernel_dump_pipe is None
    assert dict(plan.environment)["GPUDIAG_RUN"] == "/runs/r1"


@pytest.mark.parametrize("part", sorted(OWN))
def test_a_part_that_is_switched_off_leaves_nothing_behind(part: str) -> None:
    assert OWN[part] <= names(armed())
    assert not OWN[part] & names(armed(not_armed=frozenset({part})))


def test_all_of_it_can_be_switched_off() -> None:
    plan = armed("vllm", not_armed=frozenset(arming.PARTS))
    assert names(plan) == {"GPUDIAG_RUN"}
    assert (plan.ras_address, plan.flight_pipe, plan.flight_dump, plan.directories) == (None, None, None, ())


@pytest.mark.parametrize(
    ("recorder", "buffers", "dumps"),
    [
        (("TORCH_FR_BUFFER_SIZE",), {"TORCH_FR_BUFFER_SIZE"}, {"TORCH_FR_DUMP_TEMP_FILE"}),
        (("TORCH_NCCL_TRACE_BUFFER_SIZE",), {"TORCH_NCCL_TRACE_BUFFER_SIZE"}, {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}),
        (
            (),
            {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"},
            {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"},
        ),
    ],
)
def test_the_recorders_names_are_those_of_the_installed_torch(
    recorder: tuple[str, ...], buffers: set[str], dumps: set[str]
) -> None:
    plan = armed(flags=replace(table("sglang"), recorder=recorder))
    found = {n for n in names(plan) if n.endswith(("BUFFER_SIZE", "TEMP_FILE"))}
    assert found == buffers | dumps
    assert plan.flight_dump == "/runs/r1/flight/rank_"


def test_ncclogs_stay_where_a_user_who_asked_for_them_expects_them() -> None:
    plan = armed(variables={**VARIABLES, "NCCL_DEBUG": "WARN"})
    assert not {n for n in names(plan) if n.startswith("NCCL_DEBUG")}
    (kept,) = [s for s in plan.settings if s.name == "NCCL_DEBUG"]
    assert (kept.value, kept.source) == ("WARN", "your environment")


def test_a_users_own_pipe_is_what_the_plan_names() -> None:
    plan = armed(variables={**VARIABLES, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/mine/p_", "NCCL_RAS_ADDR": "localhost:1"})
    assert (plan.flight_pipe, plan.ras_address) == ("/mine/p_", "localhost:1")


def test_limits_that_end_a_hung_server_are_moved_away() -> None:
    assert value(armed("sglang"), "--watchdog-timeout") == "3600"
    vllm = dict(armed("vllm").environment)
    assert vllm["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] == "3600"
    assert vllm["VLLM_ENGINE_READY_TIMEOUT_S"] == "7200"


def test_vllm_is_not_told_variables_that_it_does_not_know() -> None:
    plan = armed("vllm", flags=replace(table("vllm"), variables=()))
    assert not {n for n in names(plan) if n.startswith("VLLM")}


def test_vllms_own_stack_dumps_are_used_where_it_has_them() -> None:
    assert "--watchdog-config" not in armed("vllm").argv, "0.32 has none"
    flags = table("vllm")
    newer = replace(flags, flags=(*flags.flags, replace(flags.flags[-1], names=("--watchdog-config",), choices=None)))
    plan = armed("vllm", flags=newer)
    assert value(plan, "--watchdog-config") == '{"dump_dir": "/runs/r1/stacks"}'
    assert "stacks" in plan.directories


def test_the_core_dump_of_the_kernels_only_on_request() -> None:
    assert not {n for n in names(armed()) if n.startswith("CUDA")}
    plan = armed(kernel_dump=True)
    found = dict(plan.environment)
    assert found["CUDA_ENABLE_USER_TRIGGERED_COREDUMP"] == "1"
    assert plan.kernel_dump_pipe == found["CUDA_COREDUMP_PIPE"]
    # The memory of the GPU holds prompts; collect/kernel_dump.py refuses dumps with it.
    assert "skip_global_memory" in found["CUDA_COREDUMP_GENERATION_FLAGS"]
    assert "kernels" in plan.directories


def test_the_servers_own_tools_come_first_on_path() -> None:
    assert dict(armed().environment)["PATH"].split(":")[:2] == ["/env/sglang/bin", "/usr/bin"]
    active = armed(variables={"PATH": "/env/sglang/bin:/usr/bin"})
    # Already active: at most our py-spy comes last.
    assert dict(active.environment).get("PATH", "/env/sglang/bin:/usr/bin").startswith("/env/sglang/bin:/usr/bin")


def test_ports_are_free_and_below_those_of_connections(tmp_path: Path) -> None:
    import socket

    seen = host.look("vllm", str(tmp_path))
    assert 28100 <= seen.ras_port < 30000
    assert seen.run_directory == str(tmp_path / seen.run_id)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert host.free_port(range(port, port + 1)) == port, "with none free the start is left to say so"
