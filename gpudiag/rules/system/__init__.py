"""Checks of the machine, its GPUs, links, limits and variables."""
