"""Writes `docs/api.md` from the docstrings of the public names: `python docs/make_api.py`."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import minutebook as mb  # noqa: E402 - needs the path above
from domain import errors  # noqa: E402 - needs the path above
from minutebook import testing  # noqa: E402 - needs the path above
from minutebook.opening import OpenSession  # noqa: E402 - needs the path above

HEAD = """\
# API

Made from docstrings by `python docs/make_api.py`; do not edit by hand.

Everything an application needs is in `minutebook`: `import minutebook as mb`. Errors are in `mb.errors`, what
tests need is in `minutebook.testing`. A name that is not here may change at any time.

"""

#: The order in which public names are told; what fits nowhere is told last.
GROUPS = {
    "Opening sessions": (
        "create_session resume_session prompt memory sqlite postgres SessionConfig stop_on_signals".split()
    ),
    "A session": (
        "Session Cursor Recorded InputReceipt PendingInput RequestResult HistoryPage PromptResult "
        "ToolExecutionRecord".split()
    ),
    "Several workers": (
        "LeaseConfig LeaseSnapshot acquire_lease AcquiredLease Fence due_sessions HandoffResult "
        "BackgroundProcess".split()
    ),
    "Tools": "tool ToolDefinition ToolSet ToolContext ToolOutput SideEffect ToolKind Interrupt".split(),
    "Permissions and answers": (
        "PermissionMode PermissionCall Verdict Interaction Approve Deny ApproveCategory Answer "
        "Decision".split()
    ),
    "Models": (
        "ProviderConfig ProviderType ProviderRegistry ModelBinding ModelInfo Thinking Budget OutputSchema "
        "OnLostAttempt ModelProvider Parameters Response Block DeclaredCall ToolSpec Stop".split()
    ),
    "Inputs": "Priority TextPart ImagePart FilePart InputCapabilities".split(),
    "What a stream shows": [
        name
        for name in mb.__all__
        if isinstance(getattr(mb, name), type) and issubclass(getattr(mb, name), mb.StreamEvent)
    ],
    "The conversation": "UserItem Exchange CallItem".split(),
    "Recovery": "RecoveryPlan RecoveryRequired RecoveryCoordinator open_coordinator Action Who".split(),
}

_LONG = 100


def page() -> str:
    """The whole page."""
    parts = [HEAD, _contents()]
    for title, names in _groups().items():
        parts.append(f"\n## {title}\n")
        parts += [_entry(f"mb.{name}", getattr(mb, name)) for name in names]
        if title == "Opening sessions":
            parts.append(_opening())
        if title == "A session":
            parts += [_entry(f"session.{name}", cls) for name, cls in _parts_of_a_session()]
    parts.append("\n## Errors: `mb.errors`\n\n")
    parts.append("Every one is a `MinutebookError` with a stable `code`.\n\n")
    parts.append("| error | code | what it means |\n|---|---|---|\n")
    parts += [_error(cls) for cls in _errors()]
    parts.append("\n## For tests: `minutebook.testing`\n")
    parts.append(f"\n{_prose(inspect.getdoc(testing))}\n")
    parts += [_entry(name, getattr(testing, name)) for name in testing.__all__]
    return "".join(parts)


def _plain(value: Any) -> str:
    """A constant, or a name for a type, in a sentence."""
    origin = typing.get_origin(value)
    return (
        f"A name for `{inspect.formatannotation(value)}`."
        if origin
        else f"A value of type `{type(value).__name__}`."
    )


def _opening() -> str:
    """What both ways of opening return: it has no public name, but entering it says a lot."""
    what, entering = _prose(inspect.getdoc(OpenSession)), _prose(inspect.getdoc(OpenSession.__aenter__))
    return f"\n### `OpenSession`\n\n{what}\n\n`async with` does this: {entering}\n"


def _parts_of_a_session() -> Iterator[tuple[str, type]]:
    """What properties of a session return that have calls of their own: `session.model` and its like."""
    for name, member in inspect.getmembers_static(mb.Session):
        if isinstance(member, property) and member.fget is not None:
            hints = typing.get_type_hints(member.fget)
            cls = hints.get("return")
            if isinstance(cls, type) and cls.__name__.startswith("Session"):
                yield name, cls


def _groups() -> dict[str, list[str]]:
    there = {title: [name for name in names if name in mb.__all__] for title, names in GROUPS.items()}
    told = {name for names in there.values() for name in names} | {"errors"}
    rest = [name for name in mb.__all__ if name not in told]
    return {**there, "Others": rest} if rest else there


def _contents() -> str:
    titles = [*_groups(), "Errors: `mb.errors`", "For tests: `minutebook.testing`"]
    return "".join(f"- [{title}](#{_anchor(title)})\n" for title in titles)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _errors() -> list[type[Exception]]:
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    return [cls for cls in found if cls.__module__ == errors.__name__]


def _error(cls: Any) -> str:
    depth = len(cls.__mro__) - len(errors.MinutebookError.__mro__)
    indent = "&nbsp;&nbsp;" * max(0, depth - (2 if issubclass(cls, ValueError | LookupError) else 0))
    text = " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split()).replace("|", "\\|")
    return f"| {indent}`{cls.__name__}` | `{cls.code}` | {text} |\n"


def _entry(name: str, value: Any) -> str:
    lines = [f"\n### `{name}`\n\n"]
    if isinstance(value, type) and issubclass(value, enum.Enum):
        words = ", ".join(f"`{member.name}` = `{member.value}`" for member in value)
        return f"{lines[0]}{_prose(inspect.getdoc(value))}\n\n{words}\n"
    if not isinstance(value, type | FunctionType):
        return f"{lines[0]}{_plain(value)}\n"
    if not _made_by_others(value):
        lines.append(f"```text\n{_signature(name, value)}\n```\n\n")
    lines.append(f"{_prose(inspect.getdoc(value))}\n")
    if isinstance(value, type):
        lines += [_member(value, each, member) for each, member in _members(value)]
    return "".join(lines)


def _made_by_others(value: Any) -> bool:
    """Whether nobody calls it: a port, what the library hands out, or an error that it raises."""
    return isinstance(value, type) and (
        (value.__name__.startswith(("Session", "RecoveryCoordinator")) and value is not mb.SessionConfig)
        or getattr(value, "_is_protocol", False)
        or issubclass(value, BaseException)
    )


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that a class or one of ours above it defines."""
    told = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for name, member in inspect.getmembers_static(cls):
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        documented = isinstance(plain, property | FunctionType) and inspect.getdoc(plain)
        if documented and not name.startswith("_") and name not in told and _is_ours(plain):
            yield name, plain


def _is_ours(member: Any) -> bool:
    function = member.fget if isinstance(member, property) else inspect.unwrap(member)
    return function.__module__.partition(".")[0] in ("minutebook", "domain", "recovery", "projections")


def _member(cls: type, name: str, member: Any) -> str:
    text = _prose(inspect.getdoc(member), "  ").lstrip()
    if isinstance(member, property):
        return f"\n- `.{name}`: {text}\n"
    signature = _signature(f".{name}", member)
    return f"\n- `{_one_line(signature)}`\n\n  {text}\n"


def _one_line(text: str) -> str:
    return re.sub(r"\(\s+", "(", " ".join(text.split())).replace(", )", ")").replace(" )", ")")


def _signature(name: str, value: Any) -> str:
    """`name(parameters) -> result`, one parameter a line where it gets long."""
    signature = inspect.signature(value)
    kept = [p for p in signature.parameters.values() if p.name not in ("self", "cls") and p.name[0] != "_"]
    parts = _parameters(kept)
    result = signature.return_annotation
    after = (
        "" if isinstance(value, type) or result is inspect.Signature.empty else f" -> {_annotation(result)}"
    )
    word = "async " if inspect.iscoroutinefunction(value) else ""
    line = f"{word}{name}({', '.join(parts)}){after}"
    if len(line) <= _LONG:
        return line
    return f"{word}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){after}"


def _parameters(kept: list[inspect.Parameter]) -> list[str]:
    parts: list[str] = []
    for parameter in kept:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts and not _has_star(parts):
            parts.append("*")
        parts.append(_parameter(parameter))
        following = kept[kept.index(parameter) + 1 :]
        if parameter.kind is parameter.POSITIONAL_ONLY and not any(
            each.kind is each.POSITIONAL_ONLY for each in following
        ):
            parts.append("/")
    return parts


def _has_star(parts: list[str]) -> bool:
    return any(part.startswith("*") and not part.startswith("**") for part in parts)


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {_default(parameter.default)}"
    return text


def _annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.replace("typing.", "").replace("collections.abc.", "")


def _default(value: Any) -> str:
    """As somebody would write it; no addresses, which differ from run to run."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if callable(value):
        return str(getattr(value, "__name__", type(value).__name__))
    if dataclasses.is_dataclass(value) and value == _as_made(value):
        return f"{type(value).__name__}()"
    text = repr(value)
    return "..." if " at 0x" in text or text.startswith("<") else text


def _as_made(value: Any) -> Any:
    """A value of the same class made without arguments, if there can be one."""
    fields = dataclasses.fields(value)
    missing = dataclasses.MISSING
    needs = any(each.default is missing and each.default_factory is missing for each in fields if each.init)
    return None if needs else type(value)()


def _prose(doc: str | None, indent: str = "") -> str:
    """A docstring as Markdown: sections become lists, and their entries keep their names."""
    out: list[str] = []
    section = ""
    for line in (doc or "").split("\n"):
        title = re.fullmatch(r"(Args|Returns|Raises|Guarantees|Yields):(.*)", line)
        entry = re.match(r"    (\*{0,2}\w[\w, .]*): (.*)", line)
        if title:
            section = title[1]
            rest = f" {title[2].strip()}" if title[2].strip() else ""
            out += ["", f"**{section}**{':' if rest else ''}{rest}", *([] if rest else [""])]
        elif section in ("Args", "Raises") and entry:
            out.append(f"- `{entry[1]}`: {entry[2]}")
        elif section and line.startswith("    "):
            out.append(f"  {line.strip()}" if section in ("Args", "Raises") else line.strip())
        else:
            section = section if line.strip() or not section else ""
            out.append(f"    {line.strip()}" if line.startswith("    ") else line)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()
    return "\n".join(f"{indent}{line}" if line else "" for line in text.split("\n"))


if __name__ == "__main__":
    (ROOT / "docs" / "api.md").write_text(page(), encoding="utf-8")
