"""Every check before serving, in the order in which they are shown."""

from __future__ import annotations

from typing import Final

from gpudiag.model.doctor import CATEGORIES
from gpudiag.rules.drafter import (
    algorithm_not_eagle3,
    aux_layers_mismatch,
    context_too_short,
    embedding_mismatch,
    feedback_mismatch,
    quantization_inherited,
    vocab_map_wrong,
    weights_dropped,
)
from gpudiag.rules.install import (
    build_dependency_missing,
    eagle3_interface_missing,
    import_fails,
    jit_toolchain_missing,
    kernel_built_not_loaded,
    known_bad_version_pair,
    model_cache_masks_edit,
    model_served_by_fallback,
    package_file_missing_or_added,
    package_file_modified,
    package_installed_twice,
    package_pins_conflict,
    package_syntax_error,
    source_build_unneeded,
)
from gpudiag.rules.kernels import arch_missing, jit_only
from gpudiag.rules.launch import (
    cuda_visible_devices_mismatch,
    flag_pair_incompatible,
    flag_unknown_to_version,
    parallelism_exceeds_gpus,
)
from gpudiag.rules.preflight.base import Check
from gpudiag.rules.system import (
    acs_redirect_above_gpus,
    cgroup_memory_below_model,
    clock_not_synchronised,
    clocks_throttled,
    closed_kernel_module_on_blackwell,
    cpu_governor_slow,
    cuda_initialisation_failed,
    disk_nearly_full,
    driver_library_mismatch,
    driver_too_old_for_runtime,
    ecc_uncorrectable,
    fabric_not_ready,
    gpu_busy_without_process,
    gpu_memory_held_by_others,
    gpus_not_uniform,
    hugepages_off,
    iommu_translating_with_p2p,
    jit_cache_unusable,
    kernel_build_failed,
    mig_or_compute_mode_in_the_way,
    model_files_incomplete,
    nccl_call_failed,
    nccl_env_contradiction,
    numa_balancing_on,
    numa_calls_blocked,
    nvlink_down,
    p2p_cache_stale,
    p2p_check_skipped,
    p2p_copy_fails,
    pcie_link_degraded,
    persistence_mode_off,
    port_in_use,
    preload_shim_present,
    ptrace_not_permitted,
    row_remap_pending,
    shm_too_small,
    stale_jit_lock,
    ulimit_too_low,
    xid_hardware_error,
)

_MODULES: Final = (
    driver_library_mismatch,
    driver_too_old_for_runtime,
    closed_kernel_module_on_blackwell,
    gpu_memory_held_by_others,
    gpu_busy_without_process,
    gpus_not_uniform,
    mig_or_compute_mode_in_the_way,
    persistence_mode_off,
    xid_hardware_error,
    ecc_uncorrectable,
    row_remap_pending,
    clocks_throttled,
    cuda_initialisation_failed,
    kernel_build_failed,
    iommu_translating_with_p2p,
    acs_redirect_above_gpus,
    pcie_link_degraded,
    nvlink_down,
    fabric_not_ready,
    p2p_check_skipped,
    p2p_copy_fails,
    nccl_call_failed,
    shm_too_small,
    ptrace_not_permitted,
    ulimit_too_low,
    cgroup_memory_below_model,
    numa_balancing_on,
    cpu_governor_slow,
    disk_nearly_full,
    hugepages_off,
    clock_not_synchronised,
    numa_calls_blocked,
    nccl_env_contradiction,
    preload_shim_present,
    stale_jit_lock,
    jit_cache_unusable,
    p2p_cache_stale,
    port_in_use,
    package_syntax_error,
    package_file_modified,
    package_file_missing_or_added,
    package_installed_twice,
    package_pins_conflict,
    model_cache_masks_edit,
    known_bad_version_pair,
    build_dependency_missing,
    jit_toolchain_missing,
    source_build_unneeded,
    kernel_built_not_loaded,
    arch_missing,
    jit_only,
    model_files_incomplete,
    model_served_by_fallback,
    eagle3_interface_missing,
    algorithm_not_eagle3,
    aux_layers_mismatch,
    vocab_map_wrong,
    weights_dropped,
    feedback_mismatch,
    context_too_short,
    embedding_mismatch,
    quantization_inherited,
    cuda_visible_devices_mismatch,
    parallelism_exceeds_gpus,
    flag_unknown_to_version,
    flag_pair_incompatible,
)

_ORDER: Final = {category: number for number, category in enumerate(CATEGORIES)}

CHECKS: Final[tuple[Check, ...]] = tuple(
    sorted((*(m.CHECK for m in _MODULES), *import_fails.CHECKS), key=lambda c: _ORDER[c.info.category])
)


def check(code: str) -> Check | None:
    """The check of this code ('GPD108' or '108') or name, None if there is none."""
    wanted = code.upper().removeprefix("GPD")
    return next((c for c in CHECKS if c.info.code == f"GPD{wanted}" or c.info.name == code.lower()), None)
