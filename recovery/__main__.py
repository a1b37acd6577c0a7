"""`python -m recovery`: the command line, without the application and without any SDK."""

from __future__ import annotations

import sys

from recovery.cli import main

if __name__ == "__main__":
    sys.exit(main())
