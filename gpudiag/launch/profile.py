"""What a profile may say: which models it is for, how they are served, and where each figure comes from."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Figure(Struct, Generic[T], frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value and who says so: a model card, a pull request, a measurement. `--explain` prints both."""

    value: T
    source: str


class Match(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The models a profile is for, by config.json; a profile without any is only taken by name."""

    model_type: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()


class DrafterChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An EAGLE-3 drafter: a repository on the hub, or a directory. Sizes of the target that it was made for, if several fit."""

    name: str
    source: str
    hidden_size: int | None = None
    layers: int | None = None
    vocab_size: int | None = None


class Speculation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the drafter runs ahead. `off` is the reason why EAGLE-3 is not to be used here."""

    steps: Figure[int] | None = None
    top_k: Figure[int] | None = None
    draft_tokens: Figure[int] | None = None
    off: str | None = None


class EngineSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options and environment variables for one engine, under its own names. `true` is an option without a value.

    `required` says that the installed version must know the options; without, one that it does not know is left out.
    """

    arguments: dict[str, Figure[bool | int | float | str]] = {}
    environment: dict[str, Figure[int | float | str]] = {}
    speculation: Speculation = Speculation()
    required: bool = True


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file. Everything in it can be overridden on the command line."""

    name: str
    summary: str
    match: Match = Match()
    tensor_parallel: Figure[int] | None = None
    max_running_requests: Figure[int] | None = None
    drafters: tuple[DrafterChoice, ...] = ()
    speculation: Speculation = Speculation()
    sglang: EngineSettings = EngineSettings()
    vllm: EngineSettings = EngineSettings()

    def engine(self, name: str) -> EngineSettings:
        return self.sglang if name == "sglang" else self.vllm
