"""`LocalStorage`: logs of one process, for standalone mode: in memory, and those that must last in
a file."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO, Final

from confluent_kafka import KafkaError

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock, SystemClock
from connect_py.futures import done as finished
from connect_py.storage.java_offset_file import read_java_offsets
from connect_py.storage.storage_log import LogRecord, Write

log = logging.getLogger(__name__)

SUFFIX: Final = ".connect-py.jsonl"  # after the name of Java's file, which is never written
# a file is written anew when this many of its lines, and three quarters, are out of date
SPARE_LINES: Final = 1_000


class OffsetFile:
    """A file of records, one JSON object a line: `{"key": text, "value": text or null}`. One thread
    at a time.

    The first time there is none, what Java's worker left is taken over.
    """

    def __init__(self, java_file: Path) -> None:
        self._java_file = java_file
        self.path = java_file.with_name(java_file.name + SUFFIX)
        self._live: dict[bytes, bytes] = {}
        self._lines = 0
        self._file: BinaryIO | None = None
        self._torn = False  # the last line may be half of one

    def open(self) -> dict[bytes, bytes]:
        """Read what is there and return it; from now on `append` may be called.

        Raises:
            ConnectError: The file, or Java's, cannot be read or made.
        """
        try:
            if self.path.exists():
                self._read()
            elif self._java_file.exists():
                self._live = read_java_offsets(self._java_file)
                log.info(
                    "took %d offsets over from %s; they are kept in %s from now on",
                    len(self._live),
                    self._java_file,
                    self.path,
                )
            self._rewrite()
        except (OSError, ValueError) as error:
            raise ConnectError(f"offsets cannot be kept in {self.path}: {error}") from error
        return dict(self._live)

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records and return when the disk has them.

        Raises:
            ConnectError: It could not be done; some of them may be there.
        """
        if self._file is None:
            raise ConnectError(f"{self.path} is not open")
        try:
            if self._torn:
                self._rewrite()
            self._torn = True
            self._file.write(b"".join(_line(key, value) for key, value in records))
            self._file.flush()
            os.fdatasync(self._file.fileno())
            self._torn = False
            for key, value in records:
                self._keep(key, value)
            if self._lines > SPARE_LINES and self._lines > 4 * len(self._live):
                self._rewrite()
        except OSError as error:
            raise ConnectError(
                f"offsets were not written to {self.path}: {error.strerror}"
            ) from error

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _keep(self, key: bytes, value: bytes | None) -> None:
        self._lines += 1
        self._live.pop(key, None)  # the order of the last writes is kept
        if value is not None:
            self._live[key] = value

    def _read(self) -> None:
        data = self.path.read_bytes()
        whole, _, torn = data.rpartition(b"\n")
        if torn:
            log.warning(
                "%s ends with a line that was not written to its end; it is left out", self.path
            )
        for line in whole.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            self._keep(entry["key"].encode(), None if value is None else value.encode())
        if self._java_file.exists() and self._java_file.stat().st_mtime > self.path.stat().st_mtime:
            log.warning(
                "%s was written by Java's worker later than %s, which counts; remove that to start "
                "from Java's",
                self._java_file,
                self.path,
            )

    def _rewrite(self) -> None:
        """Write what lives into a new file, and put it in the old one's place; until then the old
        one stays in use."""
        fresh = self.path.with_name(f"{self.path.name}.new")
        with fresh.open("wb") as file:
            file.write(b"".join(_line(key, value) for key, value in self._live.items()))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        with contextlib.suppress(OSError):  # what it could not write then, it still cannot
            self.close()
        self._lines, self._torn = len(self._live), False
        self._file = self.path.open("ab")


def _line(key: bytes, value: bytes | None) -> bytes:
    return (
        json.dumps(
            {"key": key.decode(), "value": None if value is None else value.decode()}
        ).encode()
        + b"\n"
    )


class LocalLog:
    """A `StorageLog`: what is written is read at once, on the thread that wrote it."""

    refusal: str | None = None

    def __init__(
        self, apply: Callable[[LogRecord], None], clock: Clock, file: OffsetFile | None = None
    ) -> None:
        self._apply = apply
        self._clock = clock
        self._file = file
        self._offset = 0
        self._lock = threading.RLock()  # what is applied may be answered with another record

    def start(self) -> None:
        if self._file is not None:
            for key, value in self._file.open().items():
                self._take(key, value)

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()

    def await_offset(self, offset: int, timeout: float) -> None:
        return

    def await_end(self, timeout: float) -> None:
        return

    def read_to_end(self) -> Future[None]:
        return finished(None)

    def send(
        self,
        key: bytes,
        value: bytes | None,
        done: Callable[[KafkaError | None], None] | None = None,
    ) -> None:
        self.append([(key, value)])
        if done is not None:
            done(None)

    def write(self, key: bytes, value: bytes | None, timeout: float) -> None:
        self.append([(key, value)])

    def flush(self, timeout: float) -> None:
        return

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Write records and return the offset of the last one; ConnectError."""
        with self._lock:
            if self._file is not None:
                self._file.append(records)
            for key, value in records:
                self._take(key, value)
            return self._offset - 1

    def _take(self, key: bytes, value: bytes | None) -> None:
        record = LogRecord(0, self._offset, self._clock.time_ms(), key, value)
        self._offset += 1
        self._apply(record)


class LocalStorage:
    """A `LogMaker` and a `TransactionWriter`. Logs are known by their topics' names."""

    def __init__(self, offset_topic: str, offset_file: Path, clock: Clock | None = None) -> None:
        """Name the log that lasts, and the file of Java's that it takes over."""
        self._clock = clock or SystemClock()
        self._files = {offset_topic: OffsetFile(offset_file)}
        self._logs: dict[str, LocalLog] = {}

    def log(
        self, topic: str, client: str, apply: Callable[[LogRecord], None], *, read_committed: bool
    ) -> LocalLog:
        """Open a log; each once."""
        opened = self._logs[topic] = LocalLog(apply, self._clock, self._files.get(topic))
        return opened

    def write(self, writes: Sequence[Write], timeout: float) -> int:
        """Write records of one log."""
        (topic,) = {write.topic for write in writes}
        return self._logs[topic].append([(write.key, write.value) for write in writes])
