"""A small real multi-process server that really hangs, for a first try and for tests."""
