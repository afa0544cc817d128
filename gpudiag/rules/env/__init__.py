"""Rules about the machine and the environment."""
