"""All rules on logs, the most specific first."""

from __future__ import annotations

from typing import Final

from gpudiag.rules.log import (
    all_ranks_waiting_on_device,
    collective_mismatch,
    collectives_cross_ordered,
    communicator_init_stalled,
    custom_all_reduce_on_broken_p2p,
    flag_pair_incompatible,
    flag_unknown_to_version,
    model_served_by_fallback,
    nvlink_down,
    nvls_setup_stalled,
    process_stopped,
    rank_dead,
    rank_missing_at_collective,
    rendezvous_incomplete,
    stale_file_lock_wait,
    wrong_network_interface,
    xid_hardware_error,
)
from gpudiag.rules.log.case import LogRule
from gpudiag.rules.startup import (
    architecture_unsupported,
    cuda_initialisation_failed,
    distributed_timeout_unexplained,
    drafter_shape_mismatch,
    eagle3_interface_refused,
    gpu_out_of_memory,
    host_out_of_memory_kill,
    host_topology_unsupported,
    import_hangs,
    import_module_missing,
    import_name_missing,
    import_syntax_error,
    kernel_build_failed,
    kv_cache_does_not_fit,
    launch_argument_invalid,
    model_path_missing,
    native_crash,
    nccl_call_failed,
    no_kernel_image,
    operator_not_registered,
    port_already_bound,
    shared_library_missing,
    shm_exhausted,
    undefined_symbol,
    weights_corrupt,
    weights_missing,
    worker_killed_by_signal,
    worker_raised,
)

_MODULES: Final = (
    import_syntax_error, import_module_missing, shared_library_missing, undefined_symbol, import_name_missing, no_kernel_image, gpu_out_of_memory,
    host_out_of_memory_kill, shm_exhausted, worker_killed_by_signal, model_path_missing, weights_corrupt, architecture_unsupported,
    eagle3_interface_refused, drafter_shape_mismatch, port_already_bound, native_crash, cuda_initialisation_failed, nccl_call_failed, worker_raised,
    launch_argument_invalid, kv_cache_does_not_fit, kernel_build_failed, weights_missing, host_topology_unsupported, operator_not_registered,
    import_hangs, distributed_timeout_unexplained, rank_missing_at_collective, collective_mismatch, collectives_cross_ordered, rank_dead,
    process_stopped, stale_file_lock_wait, rendezvous_incomplete, all_ranks_waiting_on_device, communicator_init_stalled, wrong_network_interface,
    nvlink_down, custom_all_reduce_on_broken_p2p, nvls_setup_stalled, xid_hardware_error, flag_unknown_to_version, flag_pair_incompatible,
    model_served_by_fallback,
)  # fmt: skip

LOG_RULES: Final[tuple[LogRule, ...]] = tuple(sorted((m.RULE for m in _MODULES), key=lambda rule: -rule.specificity))
