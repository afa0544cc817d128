"""Judgements on crashes at import and start-up, from tracebacks, exits and log lines."""
