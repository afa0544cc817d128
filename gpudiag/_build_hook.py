"""Puts probes/, kernels/, runbooks/ and torchside/ into the wheel as data of gpudiag. Runs while building, is not shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KINDS = ("probes", "kernels", "runbooks", "torchside")


class AssetHook(BuildHookInterface[Any]):
    """Maps each directory to gpudiag/_assets/ in a wheel.

    An editable install reads them from the checkout: copies would go stale, and a `gpudiag/_assets` beside the import
    hook would turn `gpudiag` into a namespace package that hides the real one (seen with hatchling 1.33).
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        for kind in KINDS:
            build_data["force_include"][str(Path(self.root) / kind)] = f"gpudiag/_assets/{kind}"
