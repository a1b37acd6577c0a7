"""What the command line's exit codes mean."""

from __future__ import annotations

from typing import Final

#: Done; `inspect`: nothing to do, or it goes on by itself; `verify`: proven.
OK: Final = 0
#: `inspect`: somebody has to answer or to decide.
WAITS: Final = 1
#: `verify`: the first bad sequence is named.
BROKEN: Final = 1
#: Wrong usage, or refused with nothing written.
USAGE: Final = 2
#: Unreadable, or blocked.
UNREADABLE: Final = 3
#: `verify`: consistent, but there was no outside head to prove it.
UNPROVEN: Final = 4
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
