"""What an audit of conversations may find, as a table: name, severity, words, of what a share, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from gpudiag.model.audit import AuditItem
from gpudiag.model.finding import Severity

_FEW: Final = 0.01
_STEP_DOWN: Final[dict[Severity, Severity]] = {"error": "warning", "warning": "info", "info": "info"}


class Kind(Struct, frozen=True):
    """One thing that may be wrong. `graded` ones count one step less while they are fewer than one in a hundred."""

    name: str
    severity: Severity
    title: str
    of: str
    step: str = ""
    graded: bool = False


DATA: Final = (
    Kind("unreadable", "error", "rows are no conversation", "rows", "look at them: sed -n NUMBERp FILE | cut -c1-200", True),
    Kind(
        "no answer",
        "error",
        "rows have no answer of the assistant",
        "conversations",
        "regenerate them with the target",
        True,
    ),
    Kind(
        "ends without answer", "warning", "rows do not end with an answer", "conversations", "take off what follows the last one"
    ),
    Kind("empty answer", "error", "answers are empty", "answers", "regenerate them: mostly requests that failed", True),
    Kind(
        "out of turn",
        "warning",
        "rows have two questions or two answers in a row",
        "conversations",
        "chat templates refuse or merge them: the text is not the one that is served",
    ),
    Kind(
        "cut off",
        "warning",
        "answers were cut off by the token limit (finish_reason)",
        "conversations",
        "generate again with a larger max_tokens: the drafter never sees how the target ends",
        graded=True,
    ),
    Kind(
        "never closed",
        "error",
        "answers open their reasoning and never close it: they were cut off",
        "reasoning",
        "generate again with a larger max_tokens, or drop them",
        graded=True,
    ),
    Kind(
        "empty reasoning",
        "warning",
        "answers have empty reasoning",
        "reasoning",
        "train on what you serve: thinking on or off",
        True,
    ),
    Kind(
        "reasoning twice",
        "error",
        "answers carry their reasoning in a field and as tags in the text",
        "reasoning",
        "keep one of both: a template that writes the field would repeat it",
    ),
    Kind(
        "row repeated",
        "warning",
        "rows are repeated word by word",
        "rows",
        "drop them: they count twice in training, and held-out rows are worth nothing",
        graded=True,
    ),
    Kind(
        "mask length",
        "error",
        "rows have a loss_mask of another length than input_ids",
        "tokenised",
        "prepare them again: mask and tokens are shifted against each other",
    ),
    Kind(
        "nothing trained",
        "warning",
        "rows train on no position",
        "tokenised",
        "the preparation did not find the assistant's part: its template is not that of the rows",
        graded=True,
    ),
    Kind(
        "all trained",
        "warning",
        "rows train on every position, the question too",
        "tokenised",
        "mask what the target does not write",
    ),
    Kind("no mask", "info", "tokenised rows have no loss_mask", "tokenised", "the trainer then trains on all positions"),
    Kind("no tokens", "error", "rows have no tokens", "tokenised", "drop them"),
)

NEVER_OPENED_MIXED: Final = Kind(
    "never opened",
    "error",
    "answers close a reasoning that they did not open, while others open it",
    "reasoning",
    "two sources were mixed, or the opening tag was stripped: make them alike",
)
NEVER_OPENED_ALWAYS: Final = Kind(
    "never opened",
    "info",
    "answers have only the closing tag: the server's template writes the opening one",
    "reasoning",
    "make sure that the trainer's template writes it too",
)
WITHOUT_REASONING: Final = Kind(
    "without reasoning",
    "warning",
    "answers have no reasoning, the others have",
    "answers told",
    "train on the mixture that you serve; a server that keeps its reasoning back makes such rows",
)
QUESTION_REPEATED: Final = Kind(
    "question repeated",
    "info",
    "rows begin with a question that another row has",
    "rows",
    "fine if several answers to each were wanted",
)

TEMPLATE: Final = (
    Kind("refused", "error", "rows are refused by the target's template", "rows", "use the roles and fields that it knows"),
    Kind(
        "other text",
        "error",
        "rows were rendered with another template than the target's",
        "with text",
        "render them with the target's own: the drafter would learn a text that is never served",
    ),
    Kind("other ends", "info", "rows differ from the template's text by white space at their ends", "with text"),
    Kind(
        "other tokens",
        "error",
        "rows have other tokens than the target's template and tokenizer give",
        "with tokens",
        "prepare them again with the target's tokenizer and template",
    ),
    Kind("cut tokens", "info", "rows are the beginning of what the template gives", "with tokens"),
    Kind(
        "reasoning left out, last",
        "error",
        "last answers lose their reasoning in the target's template",
        "with reasoning",
        "put the reasoning into the text as the server writes it: otherwise the drafter never learns it",
    ),
    Kind(
        "reasoning left out, earlier",
        "warning",
        "earlier answers lose their reasoning in the template, as they do in serving",
        "with reasoning",
        "make one row of each answer, so that each is once the last (SpecForge: expand_reasoning_conversations.py)",
    ),
    Kind("answer changed", "warning", "answers are changed by the template", "with answers", "look at what it strips from them"),
)


STATES: Final = (
    Kind("unreadable", "error", "files cannot be read", "files", "one that is being written reads as cut off; delete others"),
    Kind("other length", "error", "files have states for another number of tokens than ids", "files", "extract them again"),
    Kind("other width", "error", "files have states of another width than the target", "files", "they are of another target"),
    Kind("other layers", "error", "files have another number of layers", "files", "extract what training wants, and the last"),
    Kind("other tokens", "error", "files have token ids that the target does not have", "files", "they are of another tokenizer"),
    Kind("not finite", "error", "files have infinite numbers, or none (NaN)", "files", "extract in bfloat16: float16 overflows"),
    Kind(
        "same layers",
        "error",
        "files have two layers that are the same, byte for byte",
        "files",
        "look at the ids of the extraction",
    ),
    Kind("all zero", "error", "files have a layer of zeros", "files", "it was not captured: extract again"),
    Kind("mixed forms", "error", "files differ from the others in type, layers or width", "files", "two extractions were mixed"),
)


def item(kind: Kind, count: int, of: int, places: Sequence[object], why: str = "") -> Iterator[AuditItem]:
    """The item of this kind, if there is any case of it."""
    if count:
        few = kind.graded and count <= _FEW * of
        yield AuditItem(
            name=kind.name,
            severity=_STEP_DOWN[kind.severity] if few else kind.severity,
            title=f"{kind.title}: {why}" if why else kind.title,
            count=count,
            of=of,
            places=tuple(str(place) for place in places),
            next_step=kind.step,
        )


def items(
    kinds: Sequence[Kind], counts: Mapping[str, int], totals: Mapping[str, int], places: Mapping[str, Sequence[object]]
) -> Iterator[AuditItem]:
    """An item for each of these kinds of which there is a case."""
    for kind in kinds:
        yield from item(kind, counts.get(kind.name, 0), totals.get(kind.of, 0), places.get(kind.name, ()))
