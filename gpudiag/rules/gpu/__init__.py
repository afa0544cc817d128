"""Rules about GPUs and their links."""
