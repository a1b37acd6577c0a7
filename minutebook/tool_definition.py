"""What a tool is: its name, parameters and declared behaviour, and the set of them.

Applications make definitions with `tool` (or by hand) and give them to a session.
How a call is parsed, decided, run and recorded is elsewhere.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, overload

from pydantic import BaseModel

from domain import canonical
from domain.errors import InvalidOptions, ValueRefused
from domain.model_ports import ToolSpec
from domain.values import Interrupt, SideEffect, ToolKind, Verdict
from minutebook.tool_signature import read_signature

#: A tool's own opinion of one call, from its validated arguments. None: it has none.
Check = Callable[[Mapping[str, Any]], Verdict | str | None]
#: The class of one call and why, from its validated arguments. None: as declared.
Narrow = Callable[[Mapping[str, Any]], tuple[SideEffect, str] | None]

DEFAULT_TIMEOUT_S: Final = 600.0

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_WIDTH: Final = {SideEffect.PURE: 0, SideEffect.IDEMPOTENT: 1, SideEffect.NON_IDEMPOTENT: 2}


@dataclass(frozen=True, slots=True, eq=False)
class ToolDefinition:
    """A tool that a session may run. What is not declared is taken to be the worst.

    Calling a definition calls its function, so a decorated function stays usable.

    Args:
        name: 1 to 64 of a-z A-Z 0-9 _ -; what the model calls it by.
        description: what the model is told about it.
        parameters: a JSON Schema object.
        function: called with the arguments by name.
        is_async: whether `function` is a coroutine function; others run in a thread.
        kind: what it does to its surroundings; permission modes decide by it.
        side_effect: what running it twice would do; decides what happens after a crash.
        interrupt: whether an input of priority `now` may stop it.
        category: permission rules and grants may name it.
        destructive: true keeps the mode `yolo` from allowing it.
        version: raise it when the behaviour changes; open calls of another version are not run.
        timeout_s: seconds one run may take.
        check: asked before each call: allow, deny, ask, or None. Plain and quick, no I/O.
        narrow: asked before each run whether this call is of a milder class, and why.
        model: validates the arguments; None leaves that to the function.
        context_parameter: the name of the parameter that gets the `ToolContext`.

    Raises:
        InvalidOptions: a value cannot work; the option names the tool.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., Any]
    is_async: bool
    kind: ToolKind = ToolKind.EXECUTE
    side_effect: SideEffect = SideEffect.NON_IDEMPOTENT
    interrupt: Interrupt = Interrupt.BLOCK
    category: str | None = None
    destructive: bool = False
    version: str = "1"
    timeout_s: float = DEFAULT_TIMEOUT_S
    check: Check | None = None
    narrow: Narrow | None = None
    model: type[BaseModel] | None = None
    context_parameter: str | None = None
    _digest: str = field(init=False, repr=False, default="")

    def __post_init__(self) -> None:
        if not _is_name(self.name):
            raise InvalidOptions("tool name", "1 to 64 of a-z A-Z 0-9 _ -", self.name)
        self._require("parameters", "a JSON Schema of type object", self.parameters.get("type") == "object")
        self._require("timeout_s", "seconds above 0", 0 < self.timeout_s < math.inf)
        self._require("version", "a text", _is_text(self.version))
        self._require("category", "a text, or None", self.category is None or _is_text(self.category))
        for option, words in (("kind", ToolKind), ("side_effect", SideEffect), ("interrupt", Interrupt)):
            self._require(option, f"one of {', '.join(words)}", getattr(self, option) in set(words))
            object.__setattr__(self, option, words(getattr(self, option)))
        object.__setattr__(self, "_digest", self._identity())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself; nothing is recorded."""
        return self.function(*args, **kwargs)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over what makes two tools the same one to a journal.

        Name, schema, version, kind, side effect, interrupt, category, destructive.
        Description, code, timeout, check and narrow do not count: raise `version`.
        """
        return self._digest

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return ToolSpec(self.name, self.description, self.parameters)

    def own_check(self, arguments: Mapping[str, Any]) -> tuple[Verdict | None, str]:
        """Ask the tool's `check` about a call, failing closed.

        Args:
            arguments: validated, by parameter name.

        Returns:
            Its verdict (None: no opinion, or no check) and an empty text. A check that
            raises, or answers something else, is a deny, and the text says what was wrong.
        """
        if self.check is None:
            return None, ""
        try:
            answer = self.check(arguments)
            return (None if answer is None else Verdict(answer)), ""
        except Exception as e:
            return Verdict.DENY, f"it failed with {type(e).__name__}: {e}"[:300]

    def narrowed(self, arguments: Mapping[str, Any]) -> tuple[SideEffect, str | None]:
        """The side-effect class of one call.

        Args:
            arguments: validated, by parameter name.

        Returns:
            The class and why it was narrowed; the declared class and None where it was not.

        Raises:
            InvalidOptions: `narrow` answered a wider class, gave no reason, or failed. The
                call must not run: declare the widest class that the tool can have.
        """
        answer = self._narrow_answer(arguments) if self.narrow else None
        if answer is None:
            return self.side_effect, None
        side_effect, reason = answer
        self._require("narrow", "a reason", bool(reason))
        no_wider = _WIDTH[side_effect] <= _WIDTH[self.side_effect]
        self._require("narrow", f"a class no wider than {self.side_effect}", no_wider)
        return (side_effect, reason) if side_effect != self.side_effect else (side_effect, None)

    def _narrow_answer(self, arguments: Mapping[str, Any]) -> tuple[SideEffect, str] | None:
        assert self.narrow is not None
        try:
            answer = self.narrow(arguments)
            return None if answer is None else (SideEffect(answer[0]), str(answer[1] or ""))
        except Exception as e:
            raise InvalidOptions(f"tool {self.name}, narrow", "(side effect, reason) or None", e) from e

    def _require(self, option: str, expected: str, holds: bool) -> None:
        if not holds:
            raise InvalidOptions(f"tool {self.name}, {option}", expected, getattr(self, option))

    def _identity(self) -> str:
        counted = ("name", "parameters", "version", "kind", "side_effect", "interrupt", "category")
        try:
            return canonical.digest([*(getattr(self, part) for part in counted), self.destructive])
        except ValueRefused as e:
            raise InvalidOptions(f"tool {self.name}, parameters", "a JSON Schema", str(e)) from e


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


@overload
def tool(function: Callable[..., Any], /) -> ToolDefinition: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    kind: ToolKind = ToolKind.EXECUTE,
    side_effect: SideEffect = SideEffect.NON_IDEMPOTENT,
    interrupt: Interrupt = Interrupt.BLOCK,
    category: str | None = None,
    destructive: bool = False,
    version: str = "1",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    check: Check | None = None,
    narrow: Narrow | None = None,
) -> Callable[[Callable[..., Any]], ToolDefinition]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool from a typed function: `@mb.tool` or `@mb.tool(kind=..., ...)`.

    The name is the function's, the description its docstring, the parameters come
    from its annotations. A parameter annotated `ToolContext` is filled in by the
    session and hidden from the model. Arguments are taken strictly: a text is not
    a number, and a name that the function does not have is refused.

    Args:
        function: async, or sync (it runs in a thread and cannot be stopped from outside).
        options: those of `ToolDefinition`.

    Returns:
        The definition, which can still be called like the function.

    Raises:
        InvalidOptions: the function or an option cannot work; it names tool and parameter.
    """
    if function is None:
        return lambda decorated: _define(decorated, **options)
    return _define(function)


def _define(
    function: Callable[..., Any], *, name: str | None = None, description: str | None = None, **options: Any
) -> ToolDefinition:
    name = name or str(getattr(function, "__name__", ""))
    if not inspect.isroutine(function):
        raise InvalidOptions(f"tool {name}", "a function", function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidOptions(f"tool {name}", "a function that returns its result", "a generator")
    signature = read_signature(name, function)
    return ToolDefinition(
        name=name,
        description=description if description is not None else inspect.getdoc(function) or "",
        parameters=signature.schema,
        function=function,
        is_async=inspect.iscoroutinefunction(function),
        model=signature.model,
        context_parameter=signature.context_parameter,
        **options,
    )


class ToolSet(Mapping[str, ToolDefinition]):
    """The tools of a session by name, in the order given. `get(name)` is None for unknown names."""

    __slots__ = ("_by_name", "digest")

    def __init__(self, tools: Iterable[ToolDefinition] = ()) -> None:
        """Collect the tools.

        Args:
            tools: definitions with names of their own.

        Raises:
            InvalidOptions: two tools of one name, or something that is no definition.
        """
        self._by_name: dict[str, ToolDefinition] = {}
        for definition in tools:
            self._add(definition)
        #: SHA-256 (hex) over names and tool digests; the order does not count.
        self.digest = canonical.digest({name: each.digest for name, each in self._by_name.items()})

    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model sees them, in the order given."""
        return tuple(definition.spec for definition in self._by_name.values())

    def _add(self, definition: ToolDefinition) -> None:
        if not isinstance(definition, ToolDefinition):
            raise InvalidOptions("tools", "functions decorated with @mb.tool", definition)
        if definition.name in self._by_name:
            raise InvalidOptions(f"tool {definition.name}", "a name of its own", "a second tool of that name")
        self._by_name[definition.name] = definition

    def __getitem__(self, name: str) -> ToolDefinition:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        return f"ToolSet({', '.join(self._by_name)})"
