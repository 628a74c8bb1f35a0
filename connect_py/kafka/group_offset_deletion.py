"""Deletes individual offsets of a consumer group by calling librdkafka directly.

The library supports this, but its Python wrapper does not. The alternative, deleting the group and
writing the remaining offsets again, could lose all offsets in a crash.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, cimpl

from connect_py.api.record import TopicPartition

_PRODUCER: Final = 0  # rd_kafka_type_t; a producer is the most lightweight client
_DELETE_GROUP_OFFSETS: Final = 8  # rd_kafka_admin_op_t
_TEXT_BYTES: Final = 512


class _Partition(ctypes.Structure):
    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("error", ctypes.c_int),
        ("private", ctypes.c_void_p),
    )


class _PartitionList(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int),
        ("size", ctypes.c_int),
        ("elements", ctypes.POINTER(_Partition)),
    )


_POINTER: Final = ctypes.c_void_p
_LIST: Final = ctypes.POINTER(_PartitionList)
_SIGNATURES: Final[Mapping[str, tuple[Any, tuple[Any, ...]]]] = {
    "conf_new": (_POINTER, ()),
    "conf_set": (
        ctypes.c_int,
        (_POINTER, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t),
    ),
    "new": (_POINTER, (ctypes.c_int, _POINTER, ctypes.c_char_p, ctypes.c_size_t)),
    "destroy": (None, (_POINTER,)),
    "topic_partition_list_new": (_LIST, (ctypes.c_int,)),
    "topic_partition_list_add": (_POINTER, (_LIST, ctypes.c_char_p, ctypes.c_int32)),
    "topic_partition_list_destroy": (None, (_LIST,)),
    "queue_new": (_POINTER, (_POINTER,)),
    "queue_destroy": (None, (_POINTER,)),
    "queue_poll": (_POINTER, (_POINTER, ctypes.c_int)),
    "AdminOptions_new": (_POINTER, (_POINTER, ctypes.c_int)),
    "AdminOptions_destroy": (None, (_POINTER,)),
    "AdminOptions_set_request_timeout": (
        ctypes.c_int,
        (_POINTER, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t),
    ),
    "DeleteConsumerGroupOffsets_new": (_POINTER, (ctypes.c_char_p, _LIST)),
    "DeleteConsumerGroupOffsets_destroy": (None, (_POINTER,)),
    "DeleteConsumerGroupOffsets": (
        None,
        (_POINTER, ctypes.POINTER(_POINTER), ctypes.c_size_t, _POINTER, _POINTER),
    ),
    "DeleteConsumerGroupOffsets_result_groups": (
        ctypes.POINTER(_POINTER),
        (_POINTER, ctypes.POINTER(ctypes.c_size_t)),
    ),
    "event_error": (ctypes.c_int, (_POINTER,)),
    "event_destroy": (None, (_POINTER,)),
    "event_DeleteConsumerGroupOffsets_result": (_POINTER, (_POINTER,)),
    "group_result_error": (_POINTER, (_POINTER,)),
    "group_result_partitions": (_LIST, (_POINTER,)),
    "error_code": (ctypes.c_int, (_POINTER,)),
}


class _Library:
    """Typed librdkafka functions, without the prefix `rd_kafka_`."""

    def __init__(self) -> None:
        loaded = ctypes.CDLL(cimpl.__file__)  # exposes the librdkafka that it links to
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, f"rd_kafka_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        # for type checkers; the constructor sets all attributes
        raise AttributeError(name)


def delete_group_offsets(
    settings: Mapping[str, object],
    group: str,
    partitions: Iterable[TopicPartition],
    timeout_seconds: float,
) -> None:
    """Delete a group's offsets for partitions in one request, and wait for the response.

    Args:
        settings: Admin client settings with librdkafka's names.
        group: Group ID.
        partitions: Partitions whose offsets are deleted.
        timeout_seconds: Request timeout in seconds.

    Raises:
        KafkaException: The cluster denied the request or did not respond in time, or the settings
            are invalid.
    """
    library = _Library()
    client = _client(library, settings)
    try:
        _delete(library, client, group, list(partitions), round(timeout_seconds * 1000))
    finally:
        library.destroy(client)


def _client(library: _Library, settings: Mapping[str, object]) -> int:
    error_buffer = ctypes.create_string_buffer(_TEXT_BYTES)
    conf = library.conf_new()
    for name, value in settings.items():
        formatted = str(value).lower() if isinstance(value, bool) else str(value)
        if library.conf_set(conf, name.encode(), formatted.encode(), error_buffer, _TEXT_BYTES):
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, error_buffer.value.decode()))
    client = library.new(_PRODUCER, conf, error_buffer, _TEXT_BYTES)
    if not client:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, error_buffer.value.decode()))
    return int(client)


def _delete(
    library: _Library, client: int, group: str, partitions: list[TopicPartition], timeout_ms: int
) -> None:
    error_buffer = ctypes.create_string_buffer(_TEXT_BYTES)
    partition_list = library.topic_partition_list_new(len(partitions))
    for topic, number in partitions:
        library.topic_partition_list_add(partition_list, topic.encode(), number)
    request = _POINTER(library.DeleteConsumerGroupOffsets_new(group.encode(), partition_list))
    library.topic_partition_list_destroy(partition_list)
    options = library.AdminOptions_new(client, _DELETE_GROUP_OFFSETS)
    library.AdminOptions_set_request_timeout(options, timeout_ms, error_buffer, _TEXT_BYTES)
    queue = library.queue_new(client)
    try:
        library.DeleteConsumerGroupOffsets(client, ctypes.byref(request), 1, options, queue)
        event = library.queue_poll(queue, timeout_ms + 1000)
        if not event:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        try:
            _check(library, event)
        finally:
            library.event_destroy(event)
    finally:
        library.queue_destroy(queue)
        library.AdminOptions_destroy(options)
        library.DeleteConsumerGroupOffsets_destroy(request)


def _check(library: _Library, event: int) -> None:
    code = library.event_error(event)
    if code:
        raise KafkaException(KafkaError(code))
    count = ctypes.c_size_t()
    groups = library.DeleteConsumerGroupOffsets_result_groups(
        library.event_DeleteConsumerGroupOffsets_result(event), ctypes.byref(count)
    )
    for number in range(count.value):
        error = library.group_result_error(groups[number])
        if error:
            raise KafkaException(KafkaError(library.error_code(error)))
        partitions = library.group_result_partitions(groups[number])
        for index in range(partitions.contents.count if partitions else 0):
            code = partitions.contents.elements[index].error
            if code:
                raise KafkaException(KafkaError(code))
