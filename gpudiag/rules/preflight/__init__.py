"""Checks before serving: what a check is, the list of them, and the report they make."""
