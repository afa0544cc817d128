"""GPD104: a library was built, and another one, or none, is what the package loads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpudiag.model.doctor import CheckInfo
from gpudiag.model.facts import Facts
from gpudiag.model.finding import Culprit, Finding
from gpudiag.model.install import Built, Environment
from gpudiag.rules.install.reading import part
from gpudiag.rules.preflight.base import Answer, Check, found, passed, seen
from gpudiag.rules.preflight.words import listing


def evaluate(facts: Facts) -> Answer:
    built = part(facts, lambda install: install.built)
    if isinstance(built, Answer):
        return built
    made = [finding for one in built for finding in _faults(one, facts.environment)]
    loaded = [path for one in built for path in one.found]
    return found(made, passed(f"loads {listing(loaded, 2)}" if loaded else "no package that searches for its libraries"))


def _faults(one: Built, environment: Environment | None) -> Iterator[Finding]:
    if not one.found and one.elsewhere:
        yield _phantom(one, environment)
    for path in one.newer:
        yield CHECK.finding(
            f"{one.package} loads {one.found[0]}, and a newer build lies elsewhere",
            [
                seen("file-system", f"{path} was built later"),
                seen("interpreter", f"the package is imported from {one.looked_in}"),
            ],
            ("install what was built: pip install . --no-build-isolation --force-reinstall --no-deps (not -e)",),
            culprits=(Culprit(node=f"file:{path}", path=path),),
            severity="warning",
        )
    for path in one.wrong_suffix:
        version = environment.version if environment else "this Python"
        yield CHECK.finding(
            f"{path} is built for another Python than {version}",
            [seen("interpreter", f"its suffix is none of {', '.join(environment.extension_suffixes) if environment else '?'}")],
            ("build it with the interpreter that serves, or install the matching wheel",),
            culprits=(Culprit(node=f"file:{path}", path=path),),
            severity="warning",
        )
    if len(one.found) > 1:
        yield CHECK.finding(
            f"{one.package} finds {len(one.found)} libraries of one name and loads whichever the directory lists first",
            [seen("file-system", "all match the pattern of the loader", "\n".join(one.found))],
            ("keep one: remove the one of the older build",),
            culprits=tuple(Culprit(node=f"file:{path}", path=path) for path in one.found),
            severity="warning",
        )


def _phantom(one: Built, environment: Environment | None) -> Finding:
    owner = (
        next((d for d in environment.distributions if one.package in d.packages and d.editable), None) if environment else None
    )
    why = (
        f"{owner.name} is installed editable from {owner.editable}" if owner else "the package is imported from another directory"
    )
    tree = owner.editable if owner and owner.editable else "the source tree"
    return CHECK.finding(
        f"The kernels that were built will not be loaded: {one.package} searches beside its source, where there are none",
        [
            seen("interpreter", f"{one.package} is imported from {one.looked_in}; {why}"),
            seen(
                "file-system",
                f"{one.pattern} matches nothing there, and the library lies elsewhere",
                "\n".join(one.elsewhere[:6]),
            ),
        ],
        (
            f"install it plainly: cd {tree} && pip install . --no-build-isolation (not -e)",
            "or stay editable with --config-settings=editable.mode=inplace",
            f"prove it afterwards: gpudiag doctor --only {CHECK.info.code}",
        ),
        culprits=tuple(Culprit(node=f"file:{path}", path=path) for path in one.elsewhere[:4]),
    )


CHECK: Final = Check(
    info=CheckInfo(
        code="GPD104",
        name="kernel-built-not-loaded",
        severity="error",
        category="kernels",
        asks="is the library that was built the one that will be loaded?",
    ),
    evaluate=evaluate,
)
