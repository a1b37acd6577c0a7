"""A bound, append-only journal of AI agent sessions: kill the process, inspect, resume.

This is the one name that users import. Public names live in the modules listed
in `_EXPORTS` and are loaded when they are first used, so that `import minutebook`
is quick and needs no provider's SDK. Nothing else is defined here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from minutebook import _siblings

_siblings.check()

if TYPE_CHECKING:  # the same names once more, for type checkers and editors
    from domain import errors as errors
    from domain.cursor import Cursor as Cursor
    from domain.envelope import Fence as Fence
    from domain.envelope import Recorded as Recorded
    from domain.errors import MinutebookError as MinutebookError
    from domain.inputs import PendingInput as PendingInput
    from domain.model_ports import AttemptLookup as AttemptLookup
    from domain.model_ports import Block as Block
    from domain.model_ports import Capabilities as Capabilities
    from domain.model_ports import DeclaredCall as DeclaredCall
    from domain.model_ports import Found as Found
    from domain.model_ports import LostAttempt as LostAttempt
    from domain.model_ports import ModelProvider as ModelProvider
    from domain.model_ports import Parameters as Parameters
    from domain.model_ports import Response as Response
    from domain.model_ports import ToolSpec as ToolSpec
    from domain.next_steps import Action as Action
    from domain.next_steps import Who as Who
    from domain.values import Interrupt as Interrupt
    from domain.values import OnLostAttempt as OnLostAttempt
    from domain.values import PermissionMode as PermissionMode
    from domain.values import Priority as Priority
    from domain.values import SideEffect as SideEffect
    from domain.values import Stop as Stop
    from domain.values import ToolKind as ToolKind
    from domain.values import Verdict as Verdict
    from minutebook._siblings import ForeignPackageError as ForeignPackageError
    from minutebook.acquired_lease import AcquiredLease as AcquiredLease
    from minutebook.budget import Budget as Budget
    from minutebook.compose import acquire_lease as acquire_lease
    from minutebook.compose import create_session as create_session
    from minutebook.compose import memory as memory
    from minutebook.compose import open_coordinator as open_coordinator
    from minutebook.compose import postgres as postgres
    from minutebook.compose import resume_session as resume_session
    from minutebook.compose import sqlite as sqlite
    from minutebook.config import PermissionCall as PermissionCall
    from minutebook.config import SessionConfig as SessionConfig
    from minutebook.due import due_sessions as due_sessions
    from minutebook.input_parts import FilePart as FilePart
    from minutebook.input_parts import ImagePart as ImagePart
    from minutebook.input_parts import InputCapabilities as InputCapabilities
    from minutebook.input_parts import TextPart as TextPart
    from minutebook.interactions import Answer as Answer
    from minutebook.interactions import Approve as Approve
    from minutebook.interactions import ApproveCategory as ApproveCategory
    from minutebook.interactions import Decision as Decision
    from minutebook.interactions import Deny as Deny
    from minutebook.interactions import Interaction as Interaction
    from minutebook.lease_config import LeaseConfig as LeaseConfig
    from minutebook.lease_config import LeaseSnapshot as LeaseSnapshot
    from minutebook.leaving import HandoffResult as HandoffResult
    from minutebook.models import ModelBinding as ModelBinding
    from minutebook.models import ModelInfo as ModelInfo
    from minutebook.models import Thinking as Thinking
    from minutebook.processes import BackgroundProcess as BackgroundProcess
    from minutebook.prompting import PromptResult as PromptResult
    from minutebook.prompting import ToolExecutionRecord as ToolExecutionRecord
    from minutebook.prompting import prompt as prompt
    from minutebook.provider_config import ProviderConfig as ProviderConfig
    from minutebook.provider_options import ProviderType as ProviderType
    from minutebook.provider_registry import ProviderRegistry as ProviderRegistry
    from minutebook.receipts import HistoryPage as HistoryPage
    from minutebook.receipts import InputReceipt as InputReceipt
    from minutebook.receipts import RequestResult as RequestResult
    from minutebook.session import Session as Session
    from minutebook.signals import stop_on_signals as stop_on_signals
    from minutebook.stream_events import AttemptDiscarded as AttemptDiscarded
    from minutebook.stream_events import ContentDelta as ContentDelta
    from minutebook.stream_events import Error as Error
    from minutebook.stream_events import EventsDropped as EventsDropped
    from minutebook.stream_events import InputApplied as InputApplied
    from minutebook.stream_events import InteractionOpened as InteractionOpened
    from minutebook.stream_events import Result as Result
    from minutebook.stream_events import StreamEvent as StreamEvent
    from minutebook.stream_events import ThinkingDelta as ThinkingDelta
    from minutebook.stream_events import ToolMessage as ToolMessage
    from minutebook.stream_events import ToolProgress as ToolProgress
    from minutebook.stream_events import ToolResult as ToolResult
    from minutebook.stream_events import ToolUse as ToolUse
    from minutebook.stream_events import TurnEnd as TurnEnd
    from minutebook.stream_events import TurnInterrupted as TurnInterrupted
    from minutebook.stream_events import TurnStart as TurnStart
    from minutebook.stream_events import Usage as Usage
    from minutebook.tool_context import ToolContext as ToolContext
    from minutebook.tool_definition import ToolDefinition as ToolDefinition
    from minutebook.tool_definition import ToolSet as ToolSet
    from minutebook.tool_definition import tool as tool
    from minutebook.tool_result import ToolOutput as ToolOutput
    from projections.transcript import CallItem as CallItem
    from projections.transcript import Exchange as Exchange
    from projections.transcript import UserItem as UserItem
    from recovery.coordinator import RecoveryCoordinator as RecoveryCoordinator
    from recovery.plan import RecoveryPlan as RecoveryPlan
    from recovery.plan import RecoveryRequired as RecoveryRequired

#: Where each public name lives.
_EXPORTS: Final = {
    "domain": ("errors",),
    "domain.cursor": ("Cursor",),
    "domain.envelope": ("Fence", "Recorded"),
    "domain.errors": ("MinutebookError",),
    "domain.inputs": ("PendingInput",),
    "domain.next_steps": (
        "Action",
        "Who",
    ),
    "domain.model_ports": (
        "AttemptLookup",
        "Block",
        "Capabilities",
        "DeclaredCall",
        "Found",
        "LostAttempt",
        "ModelProvider",
        "Parameters",
        "Response",
        "ToolSpec",
    ),
    "domain.values": (
        "Interrupt",
        "OnLostAttempt",
        "PermissionMode",
        "Priority",
        "SideEffect",
        "Stop",
        "ToolKind",
        "Verdict",
    ),
    "minutebook._siblings": ("ForeignPackageError",),
    "minutebook.acquired_lease": ("AcquiredLease",),
    "minutebook.budget": ("Budget",),
    "minutebook.compose": (
        "acquire_lease",
        "create_session",
        "memory",
        "open_coordinator",
        "postgres",
        "resume_session",
        "sqlite",
    ),
    "minutebook.config": (
        "PermissionCall",
        "SessionConfig",
    ),
    "minutebook.due": ("due_sessions",),
    "minutebook.input_parts": (
        "FilePart",
        "ImagePart",
        "InputCapabilities",
        "TextPart",
    ),
    "minutebook.interactions": (
        "Answer",
        "Approve",
        "ApproveCategory",
        "Decision",
        "Deny",
        "Interaction",
    ),
    "minutebook.lease_config": ("LeaseConfig", "LeaseSnapshot"),
    "minutebook.leaving": ("HandoffResult",),
    "minutebook.models": ("ModelBinding", "ModelInfo", "Thinking"),
    "minutebook.processes": ("BackgroundProcess",),
    "minutebook.prompting": (
        "PromptResult",
        "ToolExecutionRecord",
        "prompt",
    ),
    "minutebook.provider_config": ("ProviderConfig",),
    "minutebook.provider_options": ("ProviderType",),
    "minutebook.provider_registry": ("ProviderRegistry",),
    "minutebook.receipts": ("HistoryPage", "InputReceipt", "RequestResult"),
    "minutebook.session": ("Session",),
    "minutebook.signals": ("stop_on_signals",),
    "minutebook.stream_events": (
        "AttemptDiscarded",
        "ContentDelta",
        "Error",
        "EventsDropped",
        "InputApplied",
        "InteractionOpened",
        "Result",
        "StreamEvent",
        "ThinkingDelta",
        "ToolMessage",
        "ToolProgress",
        "ToolResult",
        "ToolUse",
        "TurnEnd",
        "TurnInterrupted",
        "TurnStart",
        "Usage",
    ),
    "minutebook.tool_context": ("ToolContext",),
    "minutebook.tool_definition": (
        "ToolDefinition",
        "ToolSet",
        "tool",
    ),
    "minutebook.tool_result": ("ToolOutput",),
    "projections.transcript": (
        "CallItem",
        "Exchange",
        "UserItem",
    ),
    "recovery.coordinator": ("RecoveryCoordinator",),
    "recovery.plan": (
        "RecoveryPlan",
        "RecoveryRequired",
    ),
}
_HOMES: Final = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'minutebook' has no attribute {name!r}")
    value = getattr(__import__(home, fromlist=(name,)), name)  # what `from home import name` does
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
