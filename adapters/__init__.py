"""Everything that touches the world: stores and model providers.

Only `minutebook.compose` and the command line's entry import from here.
"""

#: Says that this package belongs to minutebook (see `minutebook._siblings`).
MINUTEBOOK_SIBLING = "minutebook"
