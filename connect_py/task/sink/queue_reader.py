"""`QueueReader`: reads a consumer's messages into large buffers, without an object per message.

The native library in `native/reader` reads the messages from a librdkafka queue through
librdkafka's public functions. The `confluent_kafka` client handles everything else: group
membership, rebalances, commits, seeks, and callbacks.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
from confluent_kafka import cimpl

from connect_py.api.message_run import MessageRun
from connect_py.api.record import RawHeaders, TimestampType, TopicPartition
from connect_py.columns.joined_bytes import JoinedBytes
from connect_py.columns.native_library import load_library
from connect_py.task.sink.consumed_messages import TIMESTAMP_TYPES

VERSION: Final = 2  # interface version of the native library; must match `VERSION` in lib.rs
# client setting that loads the native library, which is then notified of new clients
PLUGINS: Final = "plugin.library.paths"
_CLIENT_FUNCTIONS: Final = (  # in the order of `Functions` in client.rs
    "conf_interceptor_add_on_new",
    "queue_new",
    "queue_destroy",
    "queue_get_partition",
    "queue_forward",
    "queue_poll",
    "event_destroy",
    "event_message_next",
    "event_error",
    "message_timestamp",
    "message_headers",
    "event_error_string",
    "event_topic_partition",
    "topic_partition_destroy",
    "header_get_all",
    "topic_name",
)
_ERROR_NUMBERS: Final = 5
_RUN_NUMBERS: Final = 7
_COUNT: Final = struct.Struct("<I")
_SIZE: Final = struct.Struct("<i")


class ClientFailure(NamedTuple):
    """An error that the client reports for a partition instead of a message."""

    code: int
    tp: TopicPartition
    offset: int
    text: str


@cache
def _library() -> Any:
    """Return the native library with typed functions, or None if it is not available."""
    functions = load_library(
        Path(__file__).parent, "reader", VERSION, "messages are read one by one, which is slower"
    )
    if functions is None:
        return None
    # the extension module is linked to librdkafka, so it also provides librdkafka's functions
    client = ctypes.CDLL(cimpl.__file__)
    try:
        pointers = [getattr(client, f"rd_kafka_{name}") for name in _CLIENT_FUNCTIONS]
    except AttributeError:  # librdkafka is linked statically, and its functions are hidden
        return None
    functions.reader_functions(
        (ctypes.c_void_p * len(pointers))(*(ctypes.cast(f, ctypes.c_void_p) for f in pointers))
    )
    address, size = ctypes.c_void_p, ctypes.c_size_t
    functions.reader_new.restype = address
    functions.reader_free.argtypes = [address]
    functions.reader_free.restype = None
    functions.reader_follow.argtypes = [address, ctypes.c_char_p, ctypes.c_int32]
    functions.reader_poll.argtypes = [address, size, size, ctypes.c_int32]
    functions.reader_poll.restype = size
    functions.reader_error.argtypes = [address, address]
    functions.reader_run.argtypes = [address, address]
    functions.reader_take.argtypes = [address, address]
    functions.reader_take.restype = None
    return functions


class QueueReader:
    """Reads the messages that one client fetches from the partitions passed to `follow`.

    Used on the client's thread.
    """

    def __init__(self, functions: Any, reader: int) -> None:
        """Wrap a reader that the native library created."""
        self._functions = functions
        self._reader = reader

    @staticmethod
    def settings(configured: object) -> dict[str, str]:
        """Return client settings that load the native library. Empty if it is not available.

        `configured` is the user's value for `plugin.library.paths`.
        """
        functions = _library()
        if functions is None:
            return {}
        return {
            PLUGINS: ";".join(filter(None, (str(configured or "").strip("; "), functions._name)))
        }

    @classmethod
    def of_new_client(cls) -> Self | None:
        """Return a reader for the client that this thread created most recently.

        Return None if the client was created without `settings`.
        """
        functions = _library()
        reader = None if functions is None else functions.reader_new()
        return cls(functions, reader) if reader else None

    def follow(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions whenever they are assigned."""
        for tp in partitions:
            self._functions.reader_follow(self._reader, tp.topic.encode(), tp.partition)

    def poll(self, limit: int, size: int, timeout: float) -> int:
        """Wait for a message, read the available messages, and return how many were read.

        Reads at most `limit` messages and about `size` bytes. Messages from an earlier poll that
        were not retrieved are dropped.
        """
        count: int = self._functions.reader_poll(
            self._reader, limit, size, max(0, round(timeout * 1000))
        )
        return count

    def failures(self) -> Iterator[ClientFailure]:
        """Yield the errors that the last poll received instead of messages."""
        numbers = (ctypes.c_int64 * _ERROR_NUMBERS)()
        while self._functions.reader_error(self._reader, numbers):
            code, partition, offset, topic, text = numbers
            name = ctypes.string_at(topic).decode() if topic else ""
            yield ClientFailure(
                code,
                TopicPartition(name, partition),
                offset,
                ctypes.string_at(text).decode(errors="replace"),
            )

    def runs(self) -> list[MessageRun]:
        """Return the messages from the last poll."""
        runs = []
        numbers = (ctypes.c_int64 * _RUN_NUMBERS)()
        while self._functions.reader_run(self._reader, numbers):
            runs.append(self._take(*numbers))
        return runs

    def _take(
        self,
        rows: int,
        topic: int,
        kind: int,
        changes: int,
        key_bytes: int,
        value_bytes: int,
        header_bytes: int,
    ) -> MessageRun:
        name = ctypes.string_at(topic).decode()
        keys, values, headers = _Bytes(key_bytes), _Bytes(value_bytes), _Bytes(header_bytes)
        key_lengths, value_lengths, lasts = _numbers(rows), _numbers(rows), _numbers(changes)
        partitions, offsets, stamps = (pa.allocate_buffer(size * rows) for size in (4, 8, 8))
        targets = (ctypes.c_void_p * 9)(
            keys.address,
            key_lengths.buffer_info()[0],
            values.address,
            value_lengths.buffer_info()[0],
            headers.address,
            partitions.address,
            offsets.address,
            stamps.address,
            lasts.buffer_info()[0],
        )
        self._functions.reader_take(self._reader, targets)
        partition_column = pa.Array.from_buffers(pa.int32(), rows, [None, partitions])
        offset_column = pa.Array.from_buffers(pa.int64(), rows, [None, offsets])
        starts: dict[int, int] = {}
        ends: dict[int, int] = {}
        first = 0
        for last in lasts:
            partition = partition_column[last].as_py()
            starts.setdefault(partition, offset_column[first].as_py())
            ends[partition] = offset_column[last].as_py() + 1
            first = last + 1
        timestamp_type = TIMESTAMP_TYPES.get(kind)
        has_none = timestamp_type is None
        return MessageRun(
            name,
            partition_column,
            offset_column,
            JoinedBytes(keys.object, key_lengths),
            JoinedBytes(values.object, value_lengths),
            _headers(headers.object, rows) if header_bytes else None,
            pa.nulls(rows, pa.int64())
            if has_none
            else pa.Array.from_buffers(pa.int64(), rows, [None, stamps]),
            timestamp_type or TimestampType.NO_TIMESTAMP_TYPE,
            starts,
            ends,
        )

    def close(self) -> None:
        """Stop reading. Must be called before the client is closed."""
        self._functions.reader_free(self._reader)


class _Bytes:
    """A new bytes object that the native library fills before it is used."""

    def __init__(self, size: int) -> None:
        self.object: bytes = _new_bytes(None, size)
        self.address: int = _bytes_address(self.object)


_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t]
_new_bytes.restype = ctypes.py_object
_bytes_address = ctypes.pythonapi.PyBytes_AsString
_bytes_address.argtypes = [ctypes.py_object]
_bytes_address.restype = ctypes.c_void_p


def _numbers(count: int) -> array[int]:
    return array("q", [0]) * count


def _headers(packed: bytes, rows: int) -> list[RawHeaders | None]:
    at = 0

    def number(form: struct.Struct) -> int:
        nonlocal at
        at += form.size
        return int(form.unpack_from(packed, at - form.size)[0])

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return packed[at - size : at]

    headers: list[RawHeaders | None] = []
    for _ in range(rows):
        pairs: list[tuple[str, bytes | None]] = []
        for _ in range(number(_COUNT)):
            name = take(number(_COUNT)).decode(errors="replace")
            size = number(_SIZE)
            pairs.append((name, None if size < 0 else take(size)))
        headers.append(pairs or None)
    return headers
