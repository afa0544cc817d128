"""Checks of an EAGLE-3 drafter against its target and engine."""
