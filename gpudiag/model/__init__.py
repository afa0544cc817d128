"""Frozen data. Nothing in this package touches the machine or imports another part of gpudiag."""
