"""Judgements on measured speculation: functions of a Measurement."""
