"""Messages between the sink and its Spark driver: pickled values over an authenticated socket."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from connect_py.api.errors import ConnectError
from connectors.iceberg.errors import JavaError
from connectors.iceberg.protocol.commit_request import EngineSettings


@dataclass(frozen=True, slots=True)
class Opened:
    """The first message of a connection."""

    user: str  # the connector, for logs and for Spark's scheduler pool
    catalog: str
    settings: Mapping[str, str]  # of the session
    engine: EngineSettings


@dataclass(frozen=True, slots=True)
class Request:
    """A call of a method of `LakeSession`."""

    subject: str  # mostly the table, for messages
    method: str
    arguments: tuple[Any, ...]
    deadline_seconds: float = 600.0
    keywords: Mapping[str, Any] = field(default_factory=dict)  # keyword arguments


@dataclass(frozen=True, slots=True)
class Failed:
    """The response if a method raised an error; otherwise, its result is the response."""

    error: Exception
    cause: str  # the Java exception behind it

    @staticmethod
    def of(error: Exception) -> Failed:
        """Return the response for an error. An error that cannot be pickled becomes a
        ConnectError."""
        cause = str(error.__cause__) if error.__cause__ is not None else ""
        try:
            pickle.loads(pickle.dumps(error))
        except (TypeError, AttributeError, pickle.PickleError):
            error = ConnectError(f"{type(error).__name__}: {error}")
        return Failed(error, cause)

    def reraise(self) -> None:
        """Raise the error, with the Java exception as its cause."""
        raise self.error from (JavaError(self.cause) if self.cause else None)
