"""Which GPUs compiled code runs on, and checks of it."""
