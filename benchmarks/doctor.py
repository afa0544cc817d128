"""What doctor and kernels cost: wall time against their limits, and against cuobjdump where it is at hand.

    python benchmarks/doctor.py [--python VENV/bin/python] [--libraries DIR] [--cuobjdump PROGRAM]

Without arguments the machine alone is read, and gpudiag's own interpreter looked into. `--libraries` is a directory with
compiled libraries, for instance the unpacked wheels of sglang-kernel and vllm. Exit status 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from gpudiag.doctor import fatbin, libraries
from gpudiag.model.library import Library

FAST_LIMIT_S = 3.0
FASTER = 100.0
_NAME = re.compile(r"\.(sm_\d+[af]?)\.(cubin|ptx)")


def fast(python: str | None) -> float:
    """Best of three runs of doctor --fast, in seconds: the first may find cold files."""
    command = [sys.executable, "-m", "gpudiag", "doctor", "--fast", "--fail-on", "never", "--json"]
    if python:
        command += ["--python", python]
    times = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
        times.append(time.perf_counter() - started)
    return min(times)


def by_cuobjdump(program: str, path: Path) -> Counter[str]:
    """Images by architecture as cuobjdump lists them; it leaves out the suffix f."""
    counts: Counter[str] = Counter()
    for option in ("--list-elf", "--list-ptx"):
        said = subprocess.run([program, option, str(path)], capture_output=True, text=True, check=False, timeout=600)
        for target, kind in _NAME.findall(said.stdout):
            counts[target if kind == "cubin" else target.replace("sm_", "compute_")] += 1
    return counts


def by_headers(library: Library) -> Counter[str]:
    """The same from headers, empty cubins of the device link included, without the suffix f."""
    counts: Counter[str] = Counter()
    for image in (*library.images, *library.stub_images):
        counts[image.target.name.removesuffix("f")] += image.count
    return counts


def compare(program: str, directory: Path) -> bool:
    """Print both times and whether the tables are equal; False if one differs or the headers are not 100 times faster."""
    paths = [Path(found.path) for found in libraries.scan([str(directory)])]
    started = time.perf_counter()
    read = [found for path in paths if (found := fatbin.scan(path)) is not None]
    headers_s = time.perf_counter() - started
    started = time.perf_counter()
    dumped = [by_cuobjdump(program, path) for path in paths]
    dump_s = time.perf_counter() - started
    different = [one.path for one, other in zip(read, dumped, strict=True) if by_headers(one) != other]
    megabytes = sum(one.size_bytes for one in read) / 1e6
    print(
        f"kernels: {len(read)} libraries, {megabytes:.0f} MB: headers {headers_s * 1e3:.1f} ms, cuobjdump {dump_s:.2f} s,",
        end=" ",
    )
    print(f"{dump_s / headers_s:.0f} times; tables equal: {'no: ' + ', '.join(different) if different else 'yes'}")
    return not different and dump_s >= FASTER * headers_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python")
    parser.add_argument("--libraries", type=Path)
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump"))
    arguments = parser.parse_args()
    took_s = fast(arguments.python)
    print(f"doctor --fast: {took_s:.2f} s (limit {FAST_LIMIT_S:g} s)")
    good = took_s < FAST_LIMIT_S
    if arguments.libraries and arguments.cuobjdump:
        good &= compare(arguments.cuobjdump, arguments.libraries)
    elif arguments.libraries:
        print("kernels: no cuobjdump to compare with (pip install nvidia-cuda-cuobjdump)")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
