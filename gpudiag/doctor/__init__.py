"""Facts about a machine, an install, libraries, a model and a drafter, read before anything serves. Judges nothing."""
