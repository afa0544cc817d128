"""What the compiled libraries of the engines are for, and what serves in their place where a GPU cannot run them."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct


class Backend(Struct, frozen=True, kw_only=True):
    """What one library does. `required` if the engine does not start without it; `instead` is what to serve with otherwise."""

    pattern: str
    role: str
    instead: str
    required: bool = False


BACKENDS: Final[tuple[Backend, ...]] = (
    Backend(
        pattern=r"sgl_kernel/(?:sm\d+/)?common_ops\.",
        role="SGLang's basic kernels: norms, activations, sampling, MoE, quantised matrix products",
        instead="build sglang-kernel for this GPU; SGLang does not start without it",
        required=True,
    ),
    Backend(
        pattern=r"sgl_kernel/flash_ops\.",
        role="SGLang attention backend fa3",
        instead="--attention-backend flashinfer or triton",
    ),
    Backend(
        pattern=r"sgl_kernel/flashmla_ops\.",
        role="SGLang attention backend flashmla",
        instead="--attention-backend flashinfer or triton (MLA models)",
    ),
    Backend(pattern=r"sgl_kernel/spatial_ops\.", role="SGLang SM partitioning", instead="leave --enable-pdmux off"),
    Backend(pattern=r"sgl_kernel/infllm_ops\.", role="SGLang sparse attention of InfLLM", instead="leave that backend out"),
    Backend(
        pattern=r"vllm/_C(?:_stable_libtorch)?\.",
        role="vLLM's basic kernels: cache, norms, sampling, quantised matrix products",
        instead="build vLLM from source for this GPU; it does not start without it",
        required=True,
    ),
    Backend(
        pattern=r"vllm/_moe_C(?:_stable_libtorch)?\.",
        role="vLLM's mixture-of-experts kernels",
        instead="--moe-backend triton; dense models do not need them",
    ),
    Backend(
        pattern=r"vllm/vllm_flash_attn/_vllm_fa2_C\.",
        role="vLLM attention backend FLASH_ATTN, version 2",
        instead="--attention-backend FLASHINFER or TRITON_ATTN",
    ),
    Backend(
        pattern=r"vllm/vllm_flash_attn/_vllm_fa3_C\.",
        role="vLLM attention backend FLASH_ATTN, version 3",
        instead="version 2 is used by itself, or --attention-backend FLASHINFER",
    ),
    Backend(
        pattern=r"vllm/_flashmla(?:_extension)?_C\.",
        role="vLLM attention backend FLASHMLA",
        instead="--attention-backend TRITON_MLA or FLASHINFER_MLA",
    ),
    Backend(pattern=r"vllm/_flashkda_C\.", role="vLLM linear attention KDA", instead="the Triton kernels are used"),
    Backend(pattern=r"vllm/_qutlass_C\.", role="vLLM MXFP4 and NVFP4 transforms (qutlass)", instead="another quantisation"),
    Backend(pattern=r"vllm/_deepselect_C\.", role="vLLM sparse selection of DeepSeek V4", instead="a model without it"),
    Backend(
        pattern=r"/libnccl\.so",
        role="collectives between GPUs (NCCL)",
        instead="install an nvidia-nccl wheel that knows this GPU",
        required=True,
    ),
    Backend(
        pattern=r"torch/lib/libtorch_cuda\.so",
        role="PyTorch's own kernels",
        instead="install a torch build whose torch.cuda.get_arch_list() has this GPU",
        required=True,
    ),
    Backend(pattern=r"flash_attn", role="flash-attn", instead="the engine's own attention backends"),
    Backend(pattern=r"deep_gemm", role="DeepGEMM matrix products", instead="SGLANG_ENABLE_JIT_DEEPGEMM=0, VLLM_USE_DEEP_GEMM=0"),
    Backend(
        pattern=r"deep_ep", role="DeepEP all-to-all for expert parallelism", instead="serve without --moe-a2a-backend deepep"
    ),
)
"""By path; checked against the wheels sglang-kernel 0.4.10, sgl-kernel 0.3.21 and vllm 0.33.0."""

_COMPILED: Final = tuple((re.compile(b.pattern), b) for b in BACKENDS)


def backend(path: str) -> Backend | None:
    """What the library at this path does, None for one that is not known."""
    return next((b for pattern, b in _COMPILED if pattern.search(path)), None)
