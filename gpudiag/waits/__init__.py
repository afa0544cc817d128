"""Snapshots in, wait edges and progress out. Pure: the same code serves a live server, a recording and a test."""
