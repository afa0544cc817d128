"""The demo's own processes: standard library only, nothing of gpudiag."""
