"""GPD203 from the headers of extensions: also for those that are loaded late, and without running anything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.install import Needed
from gpudiag.rules.install.reading import part, short
from gpudiag.rules.kernels.backends import backend
from gpudiag.rules.preflight.base import Answer, Check, passed, seen
from gpudiag.rules.preflight.words import listing, plural


def answer(facts: Facts) -> Answer:
    """How the check ends by the headers alone, if they show no fault."""
    looked = _looked(facts)
    if isinstance(looked, Answer):
        return looked
    return passed(f"{plural(looked.extensions, 'extension')}: every library that their headers name is there")


def findings(check: Check, facts: Facts) -> Iterator[Finding]:
    """One for each library that is missing, with all who need it."""
    looked = _looked(facts)
    if isinstance(looked, Answer):
        return
    users: dict[str, list[str]] = defaultdict(list)
    for one in looked.missing:
        users[one.name].append(one.path)
    instead = {one.name: one.instead for one in looked.missing}
    for name, some in users.items():
        # An extension that nothing loads may lack what it likes; one that the engine does not start without may not.
        paths = sorted(some, key=lambda path: (not _required(path), path))
        others = instead[name]
        why = f"; the environment has {listing(list(others), 2)}" if others else ""
        yield check.finding(
            f"{short(paths[0])} needs {name}, which is not found{why}",
            [
                seen(
                    "library-image",
                    f"{plural(len(paths), 'extension')} with DT_NEEDED {name}; neither the loader nor a package of wheels has it",
                    "\n".join(map(short, paths[:10])),
                )
            ],
            (
                "install the build of this extension for the CUDA that torch was built for"
                if others
                else f"install what brings {name} (apt-file search {name}), or put its directory on LD_LIBRARY_PATH",
                f"ldd {paths[0]} | grep 'not found'",
            ),
            culprits=(Culprit(node=f"file:{paths[0]}", path=paths[0]),),
            severity=None if _required(paths[0]) else "warning",
        )


def _required(path: str) -> bool:
    known = backend(path)
    return known is not None and known.required


def _looked(facts: Facts) -> Needed | Answer:
    return part(facts, lambda install: install.needed)
