"""What may happen in a session: events, rules, the plan, the ports.

Everything here is pure: no clock, no randomness, no I/O. It imports the
standard library's pure parts, pydantic and orjson, and is imported by every
other package of the project.
"""

#: Says that this package belongs to minutebook (see `minutebook._siblings`).
MINUTEBOOK_SIBLING = "minutebook"
