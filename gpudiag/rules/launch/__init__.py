"""Checks of what a server is going to be started with: its options, and the GPUs that it may use."""
