"""`python -m gpudiag`, for an environment whose scripts are not on PATH."""

from __future__ import annotations

from gpudiag.cli.main import main

if __name__ == "__main__":
    main()
