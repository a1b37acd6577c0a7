"""Importing this imports what a process imports when it first opens a session.

For `ForkServer(preload=...)`: its children then have it already. Describes stores and
opens nothing.
"""

from __future__ import annotations

import importlib

from minutebook import compose

importlib.import_module("anyio._backends._asyncio")
compose.warm_up()
