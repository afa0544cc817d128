"""What cuda-gdb prints about a CUDA core dump, as data.

The form is that of cuda-gdb 13.0 (CUDA 13.0, driver 580). The text holds names and paths of the target: it is bounded here
and cleaned where it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from gpudiag.model.kernel import ResidentKernel

OTHERS: Final = 4
"""Kernels beyond the first whose place is asked for."""

_MOST_KERNELS: Final = 64
_MOST_TEXT: Final = 300
_MOST_LINE: Final = 4096
_OPENED: Final = "Opening GPU coredump:"
_NONE: Final = "No CUDA kernels."
_ROW: Final = re.compile(
    r"^[*\s]\s{0,12}(\d{1,6})\s+(?:-|\d{1,6})\s+(\d{1,4})\s+(\d{1,19})\s+(\S[\w ]{0,30}?)\s+(0x[0-9a-fA-F]{1,128})"
    r"\s+(\(\d{1,10},\d{1,10},\d{1,10}\))\s+((?:\(\d{1,10},\d{1,10},\d{1,10}\)\s+){1,2})(\S.*)$"
)
"""Kernel Parent Dev Grid Status 'SMs Mask' GridDim [ClusterDim] BlockDim Invocation."""
_FOCUS: Final = re.compile(r"^\[(?:Current focus set to|Switching focus to) CUDA kernel (\d{1,6}),")
_FRAME: Final = re.compile(r"^#\d{1,4}\s+(?:0x[0-9a-fA-F]{1,16} in )?(\S.*) \((?:[^()]|\([^()]*\))*\)(?: at (.+):(\d{1,9}))?$")
_SOURCE: Final = re.compile(r"^(\d{1,9})\t(.*)$")
_LAUNCH: Final = re.compile(r"<<<.{0,200}>>>")


class CudaGdbError(ValueError):
    """cuda-gdb did not read the dump; the message is its own first line about why."""


def command(debugger: str, dump: str, *, kernels: int = 0) -> list[str]:
    """The command that lists what is resident; with `kernels` also the places of that many kernels beyond the first.

    No init file is read and nothing is loaded beside the dump, which comes from the target.
    """
    asked = [f"target cudacore {dump}", "info cuda kernels"]
    for number in range(1, min(kernels, OTHERS) + 1):
        asked += [f"cuda kernel {number}", "backtrace 4"]
    arguments = [debugger, "-nx", "-batch", "-iex", "set auto-load off"]
    for one in asked:
        arguments += ["-ex", one]
    return arguments


def parse(stdout: str, stderr: str) -> tuple[ResidentKernel, ...]:
    """The kernels that were resident; none for a dump of an idle GPU.

    Raises CudaGdbError for anything that does not say so outright: cuda-gdb answers `info cuda kernels` with 'none' also
    where it could not open the dump.
    """
    lines = [line[:_MOST_LINE] for line in stdout.splitlines()]
    rows = list(_rows(lines))
    if not rows:
        trouble = _trouble(stderr)
        if trouble or _OPENED not in stdout or _NONE not in lines:
            raise CudaGdbError(trouble or "it printed no table of kernels")
        return ()
    places = _places(lines)
    return tuple(replace(kernel, **places.get(number, {})) for number, kernel in rows)


def resident(stdout: str) -> int:
    """How many kernels the table has."""
    return sum(_ROW.match(line[:_MOST_LINE]) is not None for line in stdout.splitlines())


def _rows(lines: Sequence[str]) -> Iterator[tuple[int, ResidentKernel]]:
    seen = 0
    for line in lines:
        match = _ROW.match(line)
        if match is None:
            continue
        number, device, grid, status, mask, grid_dim, dims, invocation = match.groups()
        yield (
            int(number),
            ResidentKernel(
                name=_name(invocation),
                device=int(device),
                grid=int(grid),
                grid_dim=grid_dim,
                block_dim=dims.split()[-1],
                status=status.strip(),
                multiprocessors=int(mask, 16).bit_count(),
            ),
        )
        seen += 1
        if seen == _MOST_KERNELS:
            return


def _places(lines: Sequence[str]) -> dict[int, dict[str, object]]:
    """By number of the kernel: the first frame with a source line after cuda-gdb turned to it, else the innermost."""
    found: dict[int, dict[str, object]] = {}
    focus = None
    for line in lines:
        if (match := _FOCUS.match(line)) is not None:
            focus = int(match[1])
        elif focus is not None and (match := _FRAME.match(line)) is not None:
            place = found.setdefault(focus, {"function": _name(match[1])})
            if match[2] is not None and "file" not in place:
                place.update(function=_name(match[1]), file=match[2][:_MOST_TEXT], line=int(match[3]))
        elif focus in found and (match := _SOURCE.match(line)) is not None and found[focus].get("line") == int(match[1]):
            found[focus]["source"] = match[2].strip()[:_MOST_TEXT]
    return found


def _name(invocation: str) -> str:
    """'wait_for_flag' of 'wait_for_flag<<<(1,1,1),(128,1,1)>>>' and 'copy<float>' of 'void copy<float>(float*, int)'."""
    text = _LAUNCH.sub("", invocation).strip().removeprefix("void ")
    depth = 0
    for place, char in enumerate(text):
        if char == "<":
            depth += 1
        elif char == ">":
            depth -= 1
        elif char == "(" and depth <= 0 and place and not text.startswith("(anonymous namespace)", place):
            text = text[:place]
            break
    return text.strip()[:_MOST_TEXT]


def _trouble(stderr: str) -> str:
    """The first thing that cuda-gdb complained about beyond warnings."""
    said = (line.strip() for line in stderr.splitlines())
    return next((line[:200] for line in said if line and not line.startswith("warning:")), "")
