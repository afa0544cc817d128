"""GPD307: a process waits for a lock file, or a file lock, that nobody holds any more."""

from __future__ import annotations

from collections.abc import Iterator

from gpudiag.model import node
from gpudiag.model.finding import Evidence, Finding
from gpudiag.rules.base import Rule, finding
from gpudiag.rules.confidence import Link
from gpudiag.rules.hang.standing import consequences, culprit, label, waiting
from gpudiag.waits.picture import Picture


def evaluate(picture: Picture) -> Iterator[Finding]:
    for cause in picture.causes:
        path = node.path_of(cause.nodes[0])
        into = [e for e in picture.edges_to(cause.nodes[0]) if e.wait.kind == "file-lock"]
        if path is None or not into:
            continue
        files = {f.path: f for f in picture.observation.last.files}
        fact = files.get(path)
        if fact is not None and not fact.exists:
            continue
        evidence = into[0].wait.evidence
        links: list[Link] = [[e for e in evidence if e.source in ("python-stack", "file-locks")] or evidence]
        nobody = [e for e in evidence if e.source in ("open-files", "open-files-here", "absence")]
        links += [[e for e in evidence if e.source == "file-system"], nobody] if fact is not None else [nobody or evidence]
        if fact is not None and not any("torch/utils/file_baton.py" in e.excerpt for e in evidence):
            claim = "whether the maker of this file keeps it open while it works is not known; if not, it may be alive"
            links.append((Evidence(source="convention", claim=claim, at=picture.at),))
        waiters = [e.waiter for e in into]
        first = label(picture, waiters[0])
        more = f" and {len(waiters) - 1} more" if len(waiters) > 1 else ""
        verb = "waits" if len(waiters) == 1 else "wait"
        others = (
            f"; {waiting(picture, cause, besides=waiters).removesuffix('it')}{first}" if set(cause.waiters) - set(waiters) else ""
        )
        kept = any(e.source == "open-files" and "inherited" in e.claim for e in evidence)
        what = "a file lock whose taker is dead" if kept else "a lock file that no process has open"
        yield finding(
            RULE.code,
            RULE.name,
            RULE.severity,
            title=f"{first}{more} {verb} for {what}{others}",
            links=[link for link in links if link],
            culprits=tuple(culprit(picture, w, path=path) for w in waiters),
            subjects=(cause.nodes[0], *waiters),
            consequences=consequences(picture, cause),
            next_steps=_inherited(evidence) if kept else _remove(path),
        )


def _remove(path: str) -> tuple[str, ...]:
    return (
        f"make sure that no build is running on any host that shares this path, then `rm {path}`",
        "the waiting process goes on by itself once the file is gone; no restart is needed",
    )


def _inherited(evidence: tuple[Evidence, ...]) -> tuple[str, ...]:
    claim = next(e.claim for e in evidence if e.source == "open-files")
    return (
        f"{claim}: end it if it is a leftover, and the waiting process goes on",
        "whoever starts processes while it holds a lock should open the lock file with O_CLOEXEC",
    )


RULE = Rule(code="GPD307", name="stale-file-lock-wait", severity="error", evaluate=evaluate, specificity=80)
