"""`LocalStorage`: a standalone worker's logs, in memory or, if they must persist, in a file."""

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
from connect_py.plurals import pluralize
from connect_py.storage.java_offset_file import read_java_offsets
from connect_py.storage.storage_log import LogRecord, Write

log = logging.getLogger(__name__)

# appended to the name of the Java worker's offset file; that file is never modified
SUFFIX: Final = ".connect-py.jsonl"
# the file is rewritten if it has more lines than this and over three quarters are obsolete
SPARE_LINES: Final = 1_000


class OffsetFile:
    """A file of records. Not thread-safe.

    Each line is a JSON object, `{"key": string, "value": string or null}`. If the file does not
    exist, it is initialized from the offset file of a Java worker.
    """

    def __init__(self, java_file: Path) -> None:
        self._java_file = java_file
        self.path = java_file.with_name(java_file.name + SUFFIX)
        self._records: dict[bytes, bytes] = {}
        self._lines = 0
        self._file: BinaryIO | None = None
        self._has_torn_line = False  # True if the last line may be incomplete

    def open(self) -> dict[bytes, bytes]:
        """Read and return the existing records. Must be called before `append`.

        Raises:
            ConnectError: This file or the Java worker's file cannot be read, or this file cannot be
                written.
        """
        try:
            if self.path.exists():
                self._read()
            elif self._java_file.exists():
                self._records = read_java_offsets(self._java_file)
                log.info(
                    "imported %s from %s; from now on, offsets will be stored in %s",
                    pluralize(len(self._records), "offset"),
                    self._java_file,
                    self.path,
                )
            self._rewrite()
        except (OSError, ValueError) as error:
            raise ConnectError(f"failed to open offset file {self.path}: {error}") from error
        return dict(self._records)

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records and wait until they are on disk.

        Raises:
            ConnectError: Writing failed. Some of the records may have been written.
        """
        if self._file is None:
            raise ConnectError(f"{self.path} is not open")
        try:
            if self._has_torn_line:
                self._rewrite()
            self._has_torn_line = True
            self._file.write(b"".join(_line(key, value) for key, value in records))
            self._file.flush()
            os.fdatasync(self._file.fileno())
            self._has_torn_line = False
            for key, value in records:
                self._store(key, value)
            if self._lines > SPARE_LINES and self._lines > 4 * len(self._records):
                self._rewrite()
        except OSError as error:
            raise ConnectError(
                f"failed to write offsets to {self.path}: {error.strerror}"
            ) from error

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _store(self, key: bytes, value: bytes | None) -> None:
        self._lines += 1
        self._records.pop(key, None)  # entries are ordered by their last write
        if value is not None:
            self._records[key] = value

    def _read(self) -> None:
        data = self.path.read_bytes()
        whole, _, torn = data.rpartition(b"\n")
        if torn:
            log.warning("%s: ignoring incomplete last line", self.path)
        for line in whole.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            self._store(entry["key"].encode(), None if value is None else value.encode())
        if self._java_file.exists() and self._java_file.stat().st_mtime > self.path.stat().st_mtime:
            log.warning(
                "%s was modified by a Java worker more recently than %s, but the latter takes "
                "precedence; delete the latter to start from the Java worker's offsets",
                self._java_file,
                self.path,
            )

    def _rewrite(self) -> None:
        """Write the current records to a new file and replace the old file with it."""
        new_path = self.path.with_name(f"{self.path.name}.new")
        with new_path.open("wb") as file:
            file.write(b"".join(_line(key, value) for key, value in self._records.items()))
            file.flush()
            os.fsync(file.fileno())
        new_path.replace(self.path)
        with contextlib.suppress(OSError):  # closing retries a failed write
            self.close()
        self._lines, self._has_torn_line = len(self._records), False
        self._file = self.path.open("ab")


def _line(key: bytes, value: bytes | None) -> bytes:
    return (
        json.dumps(
            {"key": key.decode(), "value": None if value is None else value.decode()}
        ).encode()
        + b"\n"
    )


class LocalLog:
    """A `StorageLog` whose records are applied immediately on the thread that writes them."""

    refusal: str | None = None

    def __init__(
        self, apply: Callable[[LogRecord], None], clock: Clock, file: OffsetFile | None = None
    ) -> None:
        self._apply = apply
        self._clock = clock
        self._file = file
        self._offset = 0
        self._lock = threading.RLock()  # applying a record may write another one

    def start(self) -> None:
        if self._file is not None:
            for key, value in self._file.open().items():
                self._process(key, value)

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
        on_delivery: Callable[[KafkaError | None], None] | None = None,
    ) -> None:
        self.append([(key, value)])
        if on_delivery is not None:
            on_delivery(None)

    def write(self, key: bytes, value: bytes | None, timeout: float) -> None:
        self.append([(key, value)])

    def flush(self, timeout: float) -> None:
        return

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Write records and return the offset of the last one. Raises ConnectError on failure."""
        with self._lock:
            if self._file is not None:
                self._file.append(records)
            for key, value in records:
                self._process(key, value)
            return self._offset - 1

    def _process(self, key: bytes, value: bytes | None) -> None:
        record = LogRecord(0, self._offset, self._clock.time_ms(), key, value)
        self._offset += 1
        self._apply(record)


class LocalStorage:
    """Implements `LogMaker` and `TransactionWriter`. Logs are identified by their topic names."""

    def __init__(self, offset_topic: str, offset_file: Path, clock: Clock | None = None) -> None:
        """Create the storage.

        Only the log named `offset_topic` is persistent. If its file does not exist, the log is
        initialized from the Java worker's `offset_file`.
        """
        self._clock = clock or SystemClock()
        self._files = {offset_topic: OffsetFile(offset_file)}
        self._logs: dict[str, LocalLog] = {}

    def log(
        self, topic: str, client: str, apply: Callable[[LogRecord], None], *, read_committed: bool
    ) -> LocalLog:
        """Open a log. Each log may be opened only once."""
        opened = self._logs[topic] = LocalLog(apply, self._clock, self._files.get(topic))
        return opened

    def write(self, writes: Sequence[Write], timeout: float) -> int:
        """Write records to a single log and return the offset of the last one."""
        (topic,) = {write.topic for write in writes}
        return self._logs[topic].append([(write.key, write.value) for write in writes])
