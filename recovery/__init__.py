"""Where a session stands and what may be done about it, from the journal alone."""

#: Says that this package belongs to minutebook (see `minutebook._siblings`).
MINUTEBOOK_SIBLING = "minutebook"
