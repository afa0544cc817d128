"""Every rule about a live or recorded server, by code."""

from __future__ import annotations

from gpudiag.rules.base import Rule
from gpudiag.rules.env import ptrace_not_permitted
from gpudiag.rules.hang import (
    child_process_stuck,
    collective_mismatch,
    compile_in_progress,
    event_loop_blocked,
    gil_held,
    idle_not_hung,
    lock_owner_stuck,
    no_progress_while_running,
    p2p_peer_missing,
    peer_process_dead,
    process_stopped,
    queue_full_reader_stuck,
    queue_starved,
    rank_busy_elsewhere,
    rank_dead,
    rank_missing_at_collective,
    ranks_diverged,
    remote_peer_silent,
    rendezvous_incomplete,
    stale_file_lock_wait,
    storage_blocked,
    wait_cycle,
    wait_without_owner,
    weight_load_in_progress,
)
from gpudiag.waits.picture import Picture

_MODULES = (
    ptrace_not_permitted,
    rank_missing_at_collective,
    collective_mismatch,
    rank_dead,
    process_stopped,
    wait_cycle,
    stale_file_lock_wait,
    rendezvous_incomplete,
    peer_process_dead,
    gil_held,
    storage_blocked,
    compile_in_progress,
    weight_load_in_progress,
    rank_busy_elsewhere,
    remote_peer_silent,
    idle_not_hung,
    queue_full_reader_stuck,
    child_process_stuck,
    no_progress_while_running,
    wait_without_owner,
    event_loop_blocked,
    p2p_peer_missing,
    lock_owner_stuck,
    ranks_diverged,
    queue_starved,
)

RULES: tuple[Rule[Picture], ...] = tuple(m.RULE for m in _MODULES)
