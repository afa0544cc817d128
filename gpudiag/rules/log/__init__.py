"""Judgements from logs: hangs, fabric, hardware and configuration that a log proves; and the case all log rules share."""
