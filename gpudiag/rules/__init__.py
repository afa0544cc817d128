"""Judgements: pure functions from evidence to findings. One rule, one file, one runbook page, one code."""
