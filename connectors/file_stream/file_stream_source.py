"""`FileStreamSourceConnector`: reads each line of a growing file as a record."""

from __future__ import annotations

import logging
import os
import select
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO, ClassVar

from connect_py.api.config import ConfigDef, Importance, Parsed, Type, non_empty
from connect_py.api.connector import SourceConnector
from connect_py.api.errors import ConnectError
from connect_py.api.record import SourceRecord
from connect_py.api.schema import STRING, Value
from connect_py.api.task import ExactlyOnceSupport, SourceTask
from connect_py.plurals import pluralize

FILE = "file"
TOPIC = "topic"
BATCH_SIZE = "batch.size"
FILENAME = "filename"  # key of the source partition
POSITION = "position"  # key of the source offset: bytes from the start of the file
IDLE_SECONDS = 0.2
CHUNK_BYTES = 64 * 1024
# file descriptor of the worker's standard input; `sys.stdin` is closed in child processes
STANDARD_INPUT = 0

log = logging.getLogger(__name__)

CONFIG_DEF = (
    ConfigDef()
    .define(
        FILE,
        Type.STRING,
        default=None,
        importance=Importance.HIGH,
        doc="Source filename. If not specified, the standard input will be used",
    )
    .define(
        TOPIC,
        Type.STRING,
        validator=non_empty,
        importance=Importance.HIGH,
        doc="The topic to publish data to",
    )
    .define(
        BATCH_SIZE,
        Type.INT,
        default=2000,
        importance=Importance.LOW,
        doc="The maximum number of records the source task can read from the file each time it is "
        "polled",
    )
)


class FileStreamSourceTask(SourceTask):
    """Reads complete lines. A record's offset is the position after its line.

    Standard input has no positions, so lines that were read but not delivered are lost when the
    task ends.
    """

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._path: str | None = None
        self._topic = ""
        self._limit = 0
        self._buffer = b""
        self._position: int | None = None  # in bytes, after the last returned line
        self._waited = False

    def start(self, props: Mapping[str, str]) -> None:
        config: dict[str, Parsed] = CONFIG_DEF.parse(props)
        self._path = config[FILE] or None
        self._topic = config[TOPIC]
        self._limit = max(1, config[BATCH_SIZE])
        if self._path is None:
            self._file = open(STANDARD_INPUT, "rb", buffering=0, closefd=False)  # noqa: SIM115 - never closed

    def poll(self) -> Sequence[SourceRecord]:
        file = self._open()
        lines: list[bytes] = []
        start = 0  # start of the next line in the buffer; returned lines are removed once per poll
        while file is not None and len(lines) < self._limit:
            end = _line_end(self._buffer, start)
            if end is not None:
                lines.append(self._buffer[start:end])
                start = end
                continue
            chunk = self._read(file)
            if not chunk:
                break
            self._buffer = self._buffer[start:] + chunk
            start = 0
        self._buffer = self._buffer[start:]
        if not lines:
            time.sleep(IDLE_SECONDS)
        return [self._record(line) for line in lines]

    def _read(self, file: BinaryIO) -> bytes:
        """Return the available bytes without waiting."""
        if self._path is None and not select.select([file], [], [], 0)[0]:
            return b""
        return file.read(CHUNK_BYTES)

    def _open(self) -> BinaryIO | None:
        if self._file is not None or self._path is None:
            return self._file
        try:
            file = open(self._path, "rb", buffering=0)  # noqa: SIM115 - closed by `stop`
        except FileNotFoundError:
            if not self._waited:
                log.warning(
                    "Couldn't find file %s for FileStreamSourceTask, sleeping to wait for it",
                    self._path,
                )
                self._waited = True
            return None
        except OSError as error:
            raise ConnectError(f"file {self._path} cannot be read: {error.strerror}") from error
        self._file = file
        self._position = self._stored_position()
        length = file.seek(0, os.SEEK_END)
        if self._position > length:
            log.warning(
                "file %s has %s, but was already read up to position %d; waiting for more data",
                self._path,
                pluralize(length, "byte"),
                self._position,
            )
        file.seek(self._position)
        return file

    def _stored_position(self) -> int:
        offset = self.context.offset_storage_reader.offset({FILENAME: self._path}) or {}
        position = offset.get(POSITION)
        if position is None:
            return 0
        if type(position) is not int or position < 0:
            raise ConnectError("Offset position is the incorrect type")
        return position

    def _record(self, line: bytes) -> SourceRecord:
        if self._position is not None:
            self._position += len(line)
        text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
        return SourceRecord(
            self._topic,
            None,
            None,
            None,
            STRING,
            text,
            int(time.time() * 1000),
            source_partition={FILENAME: self._path},
            source_offset={POSITION: self._position},
        )

    def stop(self) -> None:
        if self._file is not None and self._path is not None:
            self._file.close()


class FileStreamSourceConnector(SourceConnector):
    """Reads a file or standard input with one task."""

    config_def: ClassVar[ConfigDef] = CONFIG_DEF
    task_class: ClassVar[type[SourceTask]] = FileStreamSourceTask

    def start(self, props: Mapping[str, str]) -> None:
        config = self.config_def.parse(props)
        self._props = dict(props)
        log.info("Starting file source connector reading from %s", config[FILE] or "standard input")

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [dict(self._props)]

    def exactly_once_support(self, props: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return SUPPORTED unless the source is standard input, which cannot be read again."""
        from_file = bool(self.config_def.parse(props)[FILE])
        return ExactlyOnceSupport.SUPPORTED if from_file else ExactlyOnceSupport.UNSUPPORTED

    def alter_offsets(
        self,
        props: Mapping[str, str],
        offsets: Sequence[tuple[Mapping[str, Value] | None, Mapping[str, Value] | None]],
    ) -> bool:
        """Validate new offsets.

        The offset of any partition may be reset. A position may exceed the length of the file.
        """
        if not self.config_def.parse(props)[FILE]:
            raise ConnectError(
                "Offsets cannot be modified if the 'file' configuration is unspecified. This is "
                "because stdin is used for input and offsets are not tracked."
            )
        for partition, offset in offsets:
            if offset is not None:
                _check_position(offset)
                if partition is None:
                    raise ConnectError("Partition objects cannot be null")
                if FILENAME not in partition:
                    raise ConnectError(f"Partition objects should contain the key '{FILENAME}'")
        return True


def _check_position(offset: Mapping[str, Value]) -> None:
    if POSITION not in offset:
        raise ConnectError(f"Offset objects should either be null or contain the key '{POSITION}'")
    position = offset[POSITION]
    if type(position) is not int:
        raise ConnectError(
            f"The value for the '{POSITION}' key in the offset is expected to be a Long value"
        )
    if position < 0:
        raise ConnectError(
            f"The value for the '{POSITION}' key in the offset should be a non-negative value"
        )


def _line_end(data: bytes, start: int) -> int | None:
    """Return the end of the line that begins at `start`, or None if the line is incomplete.

    A line ends after a newline, or after a carriage return that is followed by another byte.
    """
    newline = data.find(b"\n", start)
    carriage = data.find(b"\r", start, newline if newline >= 0 else len(data))
    if 0 <= carriage < len(data) - 1:
        return carriage + (2 if data[carriage + 1] == ord("\n") else 1)
    return newline + 1 if newline >= 0 else None
