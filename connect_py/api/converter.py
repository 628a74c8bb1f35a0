"""Converters between the bytes of Kafka messages and Connect's values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from connect_py.api.batch import Column
from connect_py.api.config import ConfigDef
from connect_py.api.errors import NotColumnar
from connect_py.api.record import MutableHeaders, RawHeaders
from connect_py.api.schema import Schema, SchemaAndValue, Value


@dataclass(frozen=True, slots=True)
class ColumnRun:
    """Converted consecutive messages that share one schema.

    `column` has `stop - start` rows. A message that failed is null in it and has an entry in
    `failures`, by its index in the sequence passed to the call; the worker removes it from the
    batch and reports it.
    """

    start: int
    stop: int  # exclusive
    column: Column
    failures: Mapping[int, Exception] = field(default_factory=dict)


class Converter(ABC):
    """Converts bytes of messages to values and back, for keys or for values.

    An instance converts the keys or the values of one task, on the task's thread, and may have
    caches. An error is a failure of one record and subject to `errors.tolerance`. A
    `RetriableError`, for example because a schema registry is unavailable, is retried within
    `errors.retry.timeout`; the partitions are paused meanwhile.
    """

    config_def: ClassVar[ConfigDef] = ConfigDef()

    @abstractmethod
    def configure(self, configs: Mapping[str, str], *, is_key: bool) -> None:
        """Receive the converter's properties without their prefix. Called once, first.

        Raises:
            ConfigError: A property is invalid.
        """

    @abstractmethod
    def to_connect(
        self, topic: str, data: bytes | None, headers: RawHeaders = ()
    ) -> SchemaAndValue:
        """Convert one message. This is the reference for `to_batch`.

        Raises:
            DataError: The bytes are not in this format.
            RetriableError: A required server is unavailable.
        """

    @abstractmethod
    def from_connect(
        self, topic: str, schema: Schema | None, value: Value, headers: MutableHeaders | None = None
    ) -> bytes | None:
        """Convert one value to bytes. None results in a message without bytes.

        `headers` contains the converted headers of the message, to which more can be appended.
        None: headers are not supported.

        Raises:
            DataError: The value cannot be represented in this format.
            RetriableError: A required server is unavailable.
        """

    def to_batch(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[RawHeaders] | None = None
    ) -> Sequence[ColumnRun]:
        """Convert messages of one topic to columns.

        The runs cover all messages, in order and without gaps; a null message never ends a run.
        Each row, including failures, is equal to the result of `to_connect`.

        Raises:
            NotColumnar: The messages are converted by `to_connect`, one at a time.
            RetriableError: A required server is unavailable; the same messages are passed again.
        """
        raise NotColumnar(type(self).__name__)

    def close(self) -> None:
        """Close connections. Called once, last."""


class HeaderConverter(ABC):
    """Converts bytes of headers to values and back. Used like `Converter`, with the same errors."""

    config_def: ClassVar[ConfigDef] = ConfigDef()

    @abstractmethod
    def configure(self, configs: Mapping[str, str]) -> None:
        """Receive the converter's properties without their prefix."""

    @abstractmethod
    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Convert the bytes of one header."""

    @abstractmethod
    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Value
    ) -> bytes | None:
        """Convert the value of one header."""

    def close(self) -> None:
        """Release all resources. Called once, last."""
