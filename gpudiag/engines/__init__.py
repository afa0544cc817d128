"""What is special about SGLang, vLLM and plain torch, and nothing else knows it."""

from gpudiag.engines.recognise import recognise, server_of, servers_of, wait_frames

__all__ = ["recognise", "server_of", "servers_of", "wait_frames"]
