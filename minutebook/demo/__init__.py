"""`minutebook demo`: a session is really killed in the middle of a refund, and goes on.

Offline by default: a loopback server replays recordings of our own making to the
real SDK. With `--base-url` and `--model` the same agent talks to a real server.
"""

from __future__ import annotations

from minutebook.demo.tour import main

__all__ = ["main"]
