"""Says which of some files no process has open or mapped.

needs: nothing (any interpreter will do)
timeout: 10 s; reading what a process maps waits for a lock that a hung process may hold, which is why this can be killed
writes: none

Arguments: paths. Answer: "unused": paths, and "complete": whether every process could be looked at; if not, nothing is certain.
"""

import json
import os
import sys

SCHEMA = "gpudiag.probe/1"
MAX_MAPS = 16 << 20


def opened(path):
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return None


def used_by(pid, paths):
    """Which of the paths a process uses; None if it may not be looked at."""
    try:
        links = {opened(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
        with open(f"/proc/{pid}/maps", errors="replace") as maps:
            text = maps.read(MAX_MAPS)
    except (FileNotFoundError, ProcessLookupError):
        return set()
    except OSError:
        return None
    return {path for path in paths if path in links or path in text}


def main():
    paths = sys.argv[1:]
    answers = [used_by(pid, paths) for pid in os.listdir("/proc") if pid.isdigit()]
    used = set().union(*(a for a in answers if a))
    result = {"schema": SCHEMA, "probe": "find_unused_files", "ok": True, "complete": None not in answers}
    result["unused"] = [path for path in paths if path not in used]
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
