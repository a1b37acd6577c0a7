"""What this machine can do at best: the other side of every ratio."""
