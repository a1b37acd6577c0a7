"""The name guard: are the four packages beside this one ours?

`domain`, `projections`, `adapters` and `recovery` are common names. Python takes
the first package of a name on its path, so an application's own `domain/` could
be picked up half-way through our imports. `minutebook/__init__.py` asks here
first, before anything else of the library is imported.

Nothing foreign is ever imported or executed: only its text is read. This module
must import nothing but the standard library.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module, util
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import ClassVar, Final

SIBLINGS: Final = ("domain", "projections", "adapters", "recovery")

_MARKER: Final = "MINUTEBOOK_SIBLING"
_OURS: Final = "minutebook"
_MARKER_LINE: Final = re.compile(rf"^{_MARKER}\s*=\s*(['\"]){_OURS}\1", re.MULTILINE)
_HOME: Final = Path(__file__).parent.parent


class ForeignPackageError(ImportError):
    """A package of the same name, but not ours, is first on the import path.

    Attributes:
        name: the package's name; path: where Python found it ("nowhere" if it is missing).
        expected: where ours is; owners: installed distributions that claim the name, ours left out.
    """

    code: ClassVar[str] = "FOREIGN_PACKAGE"

    def __init__(self, name: str, found: str, owners: tuple[str, ...] = ()) -> None:
        self.expected, self.owners = str(_expected(name)), owners
        super().__init__(_message(name, found, self.expected, owners), name=name, path=found)


def check() -> None:
    """Make sure that all four siblings are ours, and import them.

    Importing them at once (they hold nothing but their marker) means that a path
    changed later cannot swap one of them.

    Raises:
        ForeignPackageError: one is not; nothing of it was imported. The message
            names both places and the ways out.
    """
    for name in SIBLINGS:
        found = _foreign(name)
        if found is not None:
            raise ForeignPackageError(name, found, owners(name))
    for name in SIBLINGS:
        import_module(name)


def owners(name: str) -> tuple[str, ...]:
    """Names of the installed distributions, other than ours, that claim a top-level package."""
    from importlib.metadata import packages_distributions  # 20 ms that a good import must not pay

    return tuple(sorted(set(packages_distributions().get(name, ())) - {_OURS}))


def _foreign(name: str) -> str | None:
    """Where Python finds `name` if that is not ours, else None."""
    module = sys.modules.get(name)
    if module is not None:
        if getattr(module, _MARKER, None) == _OURS:
            return None
        return _place(getattr(module, "__file__", None), *getattr(module, "__path__", ()))
    spec = util.find_spec(name)  # a top-level name: finds, does not import
    if spec is None:
        return "nowhere"
    if _is_ours(name, spec):
        return None
    return _place(spec.origin, *(spec.submodule_search_locations or ()))


def _is_ours(name: str, spec: ModuleSpec) -> bool:
    text = _text(name, spec)
    if text is not None:
        return _MARKER_LINE.search(text) is not None
    # A frozen application carries no text to read; then the place has to do.
    return spec.origin is not None and Path(spec.origin).parent == _expected(name).parent


def _text(name: str, spec: ModuleSpec) -> str | None:
    get_source = getattr(spec.loader, "get_source", None)
    if get_source is None:
        return None
    try:
        text = get_source(name)
    except (ImportError, SyntaxError, UnicodeDecodeError):
        return ""  # a file nobody can read is not one of ours
    return text if isinstance(text, str) else None


def _expected(name: str) -> Path:
    return _HOME / name / "__init__.py"


def _place(*candidates: str | None) -> str:
    return next((place for place in candidates if place), "an import that has no file")


def _message(name: str, found: str, expected: str, claimants: tuple[str, ...]) -> str:
    lines = [
        f"the package {name!r} that Python finds first is not minutebook's.",
        f"  found:    {found}",
        f"  expected: {expected}",
        f"minutebook brings four packages with general names ({', '.join(SIBLINGS)}).",
        "Do one of these:",
        "  - run from another directory, or with `python -P`, which leaves the current "
        "directory and the script's own off the path;",
        "  - take the directory that holds it out of PYTHONPATH;",
        f"  - rename that package, or move it inside another one (`yourapp.{name}`).",
    ]
    if claimants:
        lines.append(
            f"  - the name is also installed by: {', '.join(claimants)}. Use an environment without "
            "it, or uninstall it and install minutebook again (`pip install --force-reinstall`)."
        )
    elif found == "nowhere":
        lines.append("  - it is missing: install minutebook again (`pip install --force-reinstall`).")
    return "\n".join(lines)
