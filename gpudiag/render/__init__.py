"""Ways to show a report. Pure functions: a report in, a string out."""
