"""Stands for SGLang's compiled kernels on a CPU, for which the package index has no build. Installed as the package sgl_kernel.

Enough for a dense model with `--device cpu --attention-backend torch_native` (SGLang 0.5.23). An operator that is not here
raises when it is called, not when it is imported.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.4.10"


def assign_req_to_token_pool_cpu(
    req_pool_indices: Any, req_to_token: Any, start_offsets: Any, end_offsets: Any, out_cache_loc: Any, pool_len: int
) -> None:
    """Write the cache places of each request's new tokens, which lie one after the other, into its row of the pool."""
    del pool_len
    offset = 0
    for request, start, end in zip(req_pool_indices.tolist(), start_offsets.tolist(), end_offsets.tolist(), strict=True):
        req_to_token[request, start:end] = out_cache_loc[offset : offset + end - start].to(req_to_token.dtype)
        offset += end - start


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*arguments: Any, **named: Any) -> Any:
        raise NotImplementedError(f"the stand-in for sgl_kernel has no {name}")

    missing.__name__ = name
    return missing
