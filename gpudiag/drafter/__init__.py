"""EAGLE-3 drafters: static check, measurement, replay, training. torch only in a child process."""
