"""Recordings: write an observation to one file, read it back, and take out what must not leave the machine."""
