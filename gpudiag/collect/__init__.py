"""Live evidence: one source is one file, and each returns a Reading."""
