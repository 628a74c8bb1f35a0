"""`QueueReader`: a consumer's messages in large pieces of memory, without an object for each.

The library in `native/reader` reads them from a queue of the client's library, by functions that
are public there. The client is the one of `confluent_kafka`, which goes on with all else: group,
rebalances, commits, seeks, callbacks.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
from confluent_kafka import cimpl

from connect_py.api.message_run import MessageRun
from connect_py.api.record import RawHeaders, TimestampType, TopicPartition
from connect_py.columns.compiled import compiled_library
from connect_py.columns.joined_bytes import JoinedBytes
from connect_py.task.consumed_messages import TIMESTAMP_TYPES

VERSION: Final = 2  # of what crosses to the library; `VERSION` in lib.rs is the same
# of the client: how the library learns of a client that is made
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
    """What the client says of a partition instead of a message."""

    code: int
    tp: TopicPartition
    offset: int
    text: str


@cache
def _library() -> Any:
    """The functions of the library, with their types; None: there is none."""
    functions = compiled_library(__file__, "reader", VERSION, "messages are read one by one")
    if functions is None:
        return None
    # finds what the client's library, which this one needs, offers
    client = ctypes.CDLL(cimpl.__file__)
    try:
        found = [getattr(client, f"rd_kafka_{name}") for name in _CLIENT_FUNCTIONS]
    except AttributeError:  # it is part of this one, and hidden
        return None
    functions.reader_functions(
        (ctypes.c_void_p * len(found))(*(ctypes.cast(f, ctypes.c_void_p) for f in found))
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
    """Reads what one client has fetched, of the partitions that it follows. Used on the client's
    thread."""

    def __init__(self, functions: Any, reader: int) -> None:
        """Take a reader of the library."""
        self._functions = functions
        self._reader = reader

    @staticmethod
    def settings(configured: object) -> dict[str, str]:
        """What a client has to be made with, so that it can be read; `configured` are plugins that
        the user wants."""
        functions = _library()
        if functions is None:
            return {}
        return {
            PLUGINS: ";".join(filter(None, (str(configured or "").strip("; "), functions._name)))
        }

    @classmethod
    def of_new_client(cls) -> Self | None:
        """Make a reader of the client that this thread made last; None: it was made without
        `settings`."""
        functions = _library()
        reader = None if functions is None else functions.reader_new()
        return cls(functions, reader) if reader else None

    def follow(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these from now on, whenever they are assigned."""
        for tp in partitions:
            self._functions.reader_follow(self._reader, tp.topic.encode(), tp.partition)

    def poll(self, limit: int, size: int, timeout: float) -> int:
        """Wait for a message, then read those that are there, about `size` bytes at most; returns
        how many.

        Drops what an earlier poll has read and no call has taken.
        """
        count: int = self._functions.reader_poll(
            self._reader, limit, size, max(0, round(timeout * 1000))
        )
        return count

    def failures(self) -> Iterator[ClientFailure]:
        """The errors that the last poll got instead of messages."""
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
        """Take the messages of the last poll."""
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
        room = (ctypes.c_void_p * 9)(
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
        self._functions.reader_take(self._reader, room)
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
        """Read no more. Comes before the client is closed."""
        self._functions.reader_free(self._reader)


class _Bytes:
    """A new bytes object for the library to fill, before anybody else sees it."""

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
        named: list[tuple[str, bytes | None]] = []
        for _ in range(number(_COUNT)):
            name = take(number(_COUNT)).decode(errors="replace")
            size = number(_SIZE)
            named.append((name, None if size < 0 else take(size)))
        headers.append(named or None)
    return headers
