"""Files as a target sees them. Runs in the guarded child: a lookup on a dead network file system does not return."""

from __future__ import annotations

from gpudiag.collect.files import file_facts
from gpudiag.collect.guard_protocol import FilesReply, FilesRequest, PathsReply, PathsRequest
from gpudiag.collect.rooted import Root


def existing_paths(request: PathsRequest) -> PathsReply:
    """None of the paths where the root of the process may not be entered."""
    try:
        with Root(request.pid) as root:
            return PathsReply(existing=frozenset(root.existing(request.paths)))
    except OSError:
        return PathsReply(existing=frozenset())


def read_files(request: FilesRequest) -> FilesReply:
    return FilesReply(files=file_facts(request.pid, request.paths))
