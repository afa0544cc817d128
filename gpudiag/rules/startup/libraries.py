"""Which package brings a shared library that is missing."""

from __future__ import annotations

import re
from typing import Final

_BRINGERS: Final[tuple[tuple[str, list[str]], ...]] = (
    (
        r"^libnuma\.so",
        ["apt-get install libnuma1 (Debian, Ubuntu; libnuma-dev to build), dnf install numactl-libs (Fedora, RHEL)"],
    ),
    (
        r"^libcuda\.so",
        ["nvidia-smi", "the driver's libcuda is missing: start the container with --gpus all, or install the driver"],
    ),
    (r"^libibverbs|^librdmacm|^libmlx5", ["apt-get install libibverbs1 librdmacm1 ibverbs-providers"]),
    (r"^libnccl", ["pip install nvidia-nccl-cu13 (or -cu12, as torch was built)", "pip show torch"]),
    (r"^libcudnn", ["pip install nvidia-cudnn-cu13 (or -cu12, as torch was built)"]),
    (r"^libnvshmem", ["pip install nvidia-nvshmem-cu13 (or -cu12)"]),
    (r"^libmpi", ["apt-get install libopenmpi3"]),
    (r"^libgomp|^libgcc_s|^libstdc\+\+", ["apt-get install libgomp1 libstdc++6"]),
    (
        r"^libtorch|^libc10",
        [
            "pip show torch",
            (
                "python -c 'import torch' must come before the extension; a "
                "missing libtorch*.so means another torch than it was built for"
            ),
        ],
    ),
    (r"^libpython3", ["apt-get install libpython3-dev, or use a Python with a shared library"]),
    (r"^libGL\.so", ["apt-get install libgl1"]),
    (r"^libglib-2", ["apt-get install libglib2.0-0"]),
    (r"^libsndfile", ["apt-get install libsndfile1"]),
)
_CUDA: Final = re.compile(
    r"^lib(?P<name>cudart|cublas|cublasLt|cufft|curand|cusolver|cusparse|"
    r"nvrtc|nvJitLink|nvToolsExt|cupti|cufile)\.so\.(?P<major>\d+)"
)


def steps_for(library: str) -> list[str]:
    """What to type to get `library` (a file name)."""
    cuda = _CUDA.match(library)
    if cuda:
        major = cuda.group("major")
        name = {"cudart": "cuda-runtime", "nvrtc": "cuda-nvrtc", "cublasLt": "cublas", "nvJitLink": "nvjitlink"}.get(
            cuda.group("name"), cuda.group("name")
        )
        return [
            f"{library} belongs to CUDA {major}: a package in this environment was built for CUDA {major}",
            "python -c 'import torch; print(torch.version.cuda)'",
            f"install the build of that package for torch's CUDA, or beside it: pip install nvidia-{name}-cu{major}",
        ]
    for pattern, steps in _BRINGERS:
        if re.search(pattern, library):
            return [*steps, f"ldconfig -p | grep {library.partition('.so')[0]}"]
    return [f"ldconfig -p | grep {library.partition('.so')[0]}", f"apt-file search {library}, or dnf provides '*/{library}'"]
