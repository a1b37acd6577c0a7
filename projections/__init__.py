"""What a session looks like: pure read models, each naming the event types it folds."""

#: Says that this package belongs to minutebook (see `minutebook._siblings`).
MINUTEBOOK_SIBLING = "minutebook"
