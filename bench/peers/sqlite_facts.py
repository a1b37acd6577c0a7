"""How a peer's SQLite file is kept, told from the file itself."""

from __future__ import annotations

import sqlite3
from pathlib import Path


def kept_by(file: Path, synchronous: str = "FULL") -> str:
    """The journal mode that the file has, and the level its writer uses (SQLite's default is FULL)."""
    connection = sqlite3.connect(file)
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    connection.close()
    return f"SQLite {mode.upper()}, {synchronous}"
