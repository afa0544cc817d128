"""gpudiag: name the process, thread and line that holds up a multi-GPU inference server."""

__version__ = "0.1.0"
