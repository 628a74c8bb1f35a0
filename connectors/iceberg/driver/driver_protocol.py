"""Messages from the sink to its Spark driver over an authenticated socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connectors.iceberg.protocol.commit_request import EngineSettings


@dataclass(frozen=True, slots=True)
class OpenSession:
    """The first call of a connection."""

    user: str  # connector, for logs and the Spark scheduler pool
    catalog: str
    settings: Mapping[str, str]  # settings of the session
    engine: EngineSettings


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a method of `LakeSession`.

    The reply is the result, or the error with a `JavaError` as its cause.
    """

    subject: str  # for messages, usually the table
    method: str
    arguments: tuple[Any, ...]
    deadline_seconds: float = 600.0
    keywords: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments
