"""`python -m recovery`: the command line, from a checkout or an installation, without any SDK.

The one edge of this package that points up: importing `minutebook` first checks
that the five packages on the path are ours, before any of them is run.
"""

from __future__ import annotations

import sys

try:
    from minutebook.cli import main
except ImportError as error:
    if getattr(error, "code", "") != "FOREIGN_PACKAGE":
        raise
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(main(prog="python -m recovery"))
