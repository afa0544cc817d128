"""Rules about a live process that waits, or seems to."""
