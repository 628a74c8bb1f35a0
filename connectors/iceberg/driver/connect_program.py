"""The Spark Connect process: runs statements on servers, by PySpark's own client.

The worker runs it as a shared service beside the Spark driver process, because a remote and a classic session cannot
share a process. It needs the extra `spark-connect`.

Each connection is one statement, in a session of its own: the server knows no setting of an earlier one. A connection
that ends before the statement does interrupts it.

Garbage is collected after each statement, and at no other time. PySpark closes a session when it is collected, and
waits for its threads meanwhile. During a gRPC call of another session these threads wait for that call: neither ends.
"""

from __future__ import annotations

import gc
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from connect_py.api.errors import ConnectError
from connect_py.api.secret_keys import SECRET_KEY
from connectors.iceberg.config.remote_url import remote_address
from connectors.iceberg.driver.connect_client import RemoteStatement
from connectors.iceberg.driver.driver_protocol import Failed
from connectors.iceberg.driver.program import Watch, begin, serve
from connectors.iceberg.errors import CatalogUnavailableError, TableForbiddenError, TableUnsuitableError

log = logging.getLogger(__name__)

_RETRIES: Final = 3  # of a request that the server does not answer: the coordinator tries again later
_CATALOG: Final = "spark.sql.catalog."
_MASK: Final = "[hidden]"
_SHORTEST_SECRET: Final = 6
_DETAILS: Final = re.compile(r'details = "(.*)"')
_REFUSALS: Final = ("PERMISSION_DENIED", "UNAUTHENTICATED")


class _Running:
    """One statement: `run` on a thread of its own, `interrupt` and `release` from another."""

    def __init__(self, asked: RemoteStatement) -> None:
        self._asked = asked
        self._place = f"Spark Connect at {remote_address(asked.url)}"
        self._session: Any = None
        self._interrupted = False

    def run(self) -> Failed | None:
        """Returns what to answer; None: it came to its end."""
        try:
            self._execute()
        except Exception as error:  # noqa: BLE001 - the answer shows it to the user
            return Failed.of(self._translated(error))
        finally:
            self.release()
        return None

    def interrupt(self) -> None:
        """End the statement."""
        self._interrupted = True
        if self._session is not None:
            with suppress(Exception):  # the server may be gone
                self._session.interruptAll()

    def _execute(self) -> None:
        from pyspark.sql import SparkSession
        from pyspark.sql.connect.client.retries import DefaultPolicy

        session: Any = SparkSession.builder.remote(self._asked.url).create()
        self._session = session
        session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
        for key, value in self._settings():
            session.conf.set(key, value)
        if self._interrupted:
            raise CatalogUnavailableError(f"{self._asked.subject}: interrupted")
        session.sql(self._asked.statement)

    def _settings(self) -> Iterator[tuple[str, str]]:
        """Settings of the session, without those of catalogs that the server knows already."""
        settings = self._asked.settings
        names = sorted({key.removeprefix(_CATALOG).split(".", 1)[0] for key in settings if key.startswith(_CATALOG)})
        own = [_CATALOG + name for name in names if self._session.conf.get(_CATALOG + name, None) is not None]
        for catalog in own:
            log.info("%s knows catalog %s: its own settings count", self._place, catalog.removeprefix(_CATALOG))
            # But a catalog that keeps tables, as it does by default, would not see the branches of the next MERGE.
            yield f"{catalog}.cache-enabled", "false"
        for key, value in settings.items():
            if key not in own and not key.startswith(tuple(f"{catalog}." for catalog in own)):
                yield key, value

    def release(self) -> None:
        """Give the session up: the server stops what runs in it."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                session.stop()

    def _translated(self, error: Exception) -> ConnectError:
        """By Spark's own class of error, where there is one."""
        from pyspark.errors import AnalysisException

        if isinstance(error, ConnectError):
            return error
        subject = self._asked.subject
        cause: Any = error if hasattr(error, "getGrpcStatusCode") else error.__cause__ or error
        status = cause.getGrpcStatusCode() if hasattr(cause, "getGrpcStatusCode") else getattr(cause, "code", str)()
        code = getattr(status, "name", "")
        text = str(cause).strip()
        details = _DETAILS.search(text)
        said = masked(details[1] if details else text.split("\n", 1)[0], self._asked)
        if isinstance(error, AnalysisException):  # it may know another table of this name
            return TableUnsuitableError(subject, f"{self._place}: {said}")
        if code in _REFUSALS:
            return TableForbiddenError(subject, f"{self._place} refuses: {said}")
        return CatalogUnavailableError(f"{subject}: {self._place}: {code or type(error).__name__}: {said}")


def masked(text: str, asked: RemoteStatement) -> str:
    """The text without secrets of the URL and of the settings."""
    given = [pair.partition("=") for pair in urlsplit(asked.url).path.split(";")]
    pairs: Mapping[str, str] = {**asked.settings, **{name: unquote(value) for name, _, value in given}}
    for key, value in pairs.items():
        if SECRET_KEY.search(key) and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, _MASK)
    return text


def serve_one(connection: Connection) -> None:
    """Run the statement of one connection. Its user hangs up when it has the answer, or gives up."""
    asked: RemoteStatement = connection.recv()
    running = _Running(asked)
    try:
        with Watch(asked.subject, connection, running.interrupt, running.release):
            answer = running.run()
        connection.send(answer)
    finally:
        gc.collect()


def main() -> None:
    """See the module."""
    program = begin()
    gc.disable()
    try:
        import pyspark.sql.connect.session  # noqa: F401 - early, and not with the first statement
    except ImportError as error:
        program.failed(f"PySpark's client of Spark Connect is not installed, see the extra spark-connect: {error}")
    serve(program, serve_one)
    program.ready()
    program.wait_for_end()


if __name__ == "__main__":
    main()
