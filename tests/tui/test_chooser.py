"""Which server is watched where several run, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from gpudiag.errors import GpudiagError, NotInspectableError
from gpudiag.tui.chooser import Candidate, Chooser
from gpudiag.tui.lines import Lines

SERVERS = (
    Candidate(pid=42, engine="vllm", ranks=2, command="vllm serve model --tensor-parallel-size 2"),
    Candidate(pid=4343, engine="sglang", ranks=8, command="python -m sglang.launch_server --tp 8"),
)


def choose(found: Sequence[Candidate] | GpudiagError, *keys: str) -> tuple[int | None, str]:
    """What was chosen with these keys, and what the screen showed before."""

    def search() -> Sequence[Candidate]:
        if isinstance(found, GpudiagError):
            raise found
        return found

    async def run() -> tuple[int | None, str]:
        app = Chooser(search)
        async with app.run_test(size=(80, 24)) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            shown = app.query_one("#body", Lines).drawn.text()
            await pilot.press(*keys)
            await pilot.pause()
        return app.return_value, shown

    return asyncio.run(run())


CHOICES = [(("enter",), 42), (("down", "enter"), 4343), (("j", "j", "k", "enter"), 42), (("q",), None)]


@pytest.mark.parametrize(("keys", "pid"), CHOICES)
def test_one_of_several_is_chosen(keys: tuple[str, ...], pid: int | None) -> None:
    chosen, shown = choose(SERVERS, *keys)
    assert chosen == pid
    assert "    4343  sglang        8  python -m sglang.launch_server --tp 8" in shown


def test_without_a_server_it_says_what_else_there_is() -> None:
    chosen, shown = choose((), "enter", "q")
    assert chosen is None
    assert "no SGLang, vLLM or torch.distributed server runs here" in shown
    assert "gpudiag demo" in shown


def test_why_nothing_can_be_seen_is_said() -> None:
    assert "/proc is that of another" in choose(NotInspectableError("/proc is that of another namespace"), "q")[1]
