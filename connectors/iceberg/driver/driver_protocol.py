"""Messages from the sink to its Spark driver over an authenticated socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connectors.iceberg.protocol.commit_request import EngineSettings


@dataclass(frozen=True, slots=True)
class OpenSession:
    """The first call on a connection, which opens a session."""

    user: str  # name of the connector, for logs and as the name of its Spark scheduler pool
    catalog: str
    settings: Mapping[str, str]  # Spark settings of the session
    engine: EngineSettings


@dataclass(frozen=True, slots=True)
class Request:
    """A call to a `LakeSession` method.

    The reply is the method's result or the error that it raised. If the error has a cause, a
    `JavaError` with the same message replaces the cause.
    """

    subject: str  # what the request concerns, usually a table name; used in error messages
    method: str
    arguments: tuple[Any, ...]
    deadline_seconds: float = 600.0
    keywords: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments
