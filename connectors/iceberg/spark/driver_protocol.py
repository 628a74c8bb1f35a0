"""What coordinators and the Spark driver process say to each other: pickled values over an authenticated socket."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import Any, NoReturn

from connect_py.api.errors import ConnectError
from connectors.iceberg.spark.commit_engine import EngineSettings
from connectors.iceberg.spark.errors import JavaError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """The first message of a connection."""

    user: str  # the connector, for logs and for Spark's scheduler pool
    catalog: str
    settings: Mapping[str, str]  # of the session
    engine: EngineSettings


@dataclass(frozen=True, slots=True)
class Request:
    """A method of `LakeSession`."""

    subject: str  # mostly the table, for messages
    method: str
    arguments: tuple[Any, ...]
    deadline_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The method's result."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """What the method raised, and the Java exception behind it as text."""

    error: Exception
    cause: str

    @staticmethod
    def of(error: Exception) -> Failed:
        cause = str(error.__cause__) if error.__cause__ is not None else ""
        try:
            pickle.loads(pickle.dumps(error))
        except (TypeError, AttributeError, pickle.PickleError):  # not every foreign error survives the way
            error = ConnectError(f"{type(error).__name__}: {error}")
        return Failed(error, cause)

    def reraise(self) -> None:
        """Raise it, with the Java exception as its cause."""
        raise self.error from (JavaError(self.cause) if self.cause else None)


def serve_connections(listener: Listener, serve_one: Callable[[Connection], None], name: str) -> NoReturn:
    """Accept connections for ever, each on a thread of its own. `name`: of the threads."""
    while True:
        try:
            connection = listener.accept()
        except (AuthenticationError, EOFError, ConnectionError) as error:
            log.warning("a connection was refused: %s", error)
            continue
        threading.Thread(target=serve_one, args=(connection,), name=name, daemon=True).start()
