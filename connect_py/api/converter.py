"""Converters between serialized Kafka messages and Connect values."""

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
    """Consecutive converted messages that share one schema.

    `column` has `stop - start` rows. A message that failed is null in `column` and has an entry in
    `failures`, keyed by its index in the sequence that was passed to `to_batch`. The worker removes
    the message from the batch and reports it.
    """

    start: int
    stop: int  # exclusive
    column: Column
    failures: Mapping[int, Exception] = field(default_factory=dict)


class Converter(ABC):
    """Deserializes and serializes the keys or the values of messages.

    An instance converts either the keys or the values for one task, on the task's thread, and may
    cache data. An error fails one record and is subject to `errors.tolerance`. After a
    `RetriableError`, the conversion is retried for up to `errors.retry.timeout`, or indefinitely if
    the error is an `UnavailableError`. The partitions are paused in the meantime.
    """

    config_def: ClassVar[ConfigDef] = ConfigDef()

    @abstractmethod
    def configure(self, configs: Mapping[str, str], *, is_key: bool) -> None:
        """Configure the converter. Called once, before all other methods.

        `configs` contains the converter's properties, without their prefix.

        Raises:
            ConfigError: A property is invalid.
        """

    @abstractmethod
    def to_connect(
        self, topic: str, data: bytes | None, headers: RawHeaders = ()
    ) -> SchemaAndValue:
        """Deserialize one message. This method defines the results that `to_batch` must return.

        Raises:
            DataError: The bytes are not in this format.
            RetriableError: A required server is unavailable.
        """

    @abstractmethod
    def from_connect(
        self, topic: str, schema: Schema | None, value: Value, headers: MutableHeaders | None = None
    ) -> bytes | None:
        """Serialize one value. Return None for a null message.

        `headers` contains the serialized headers of the message. The converter may append headers.
        `headers` is None if headers are not supported.

        Raises:
            DataError: The value cannot be represented in this format.
            RetriableError: A required server is unavailable.
        """

    def to_batch(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[RawHeaders] | None = None
    ) -> Sequence[ColumnRun]:
        """Deserialize messages from one topic to columns.

        The runs cover all messages, in order and without gaps. A null message never ends a run.
        Each row must equal the result of `to_connect`, and each failure must equal the error that
        `to_connect` raises.

        Raises:
            NotColumnar: The messages have no columnar form. They are passed to `to_connect` one at
                a time.
            RetriableError: A required server is unavailable. The same messages are passed again.
        """
        raise NotColumnar(type(self).__name__)

    def close(self) -> None:
        """Close connections. Called once, after all other methods."""


class HeaderConverter(ABC):
    """Deserializes and serializes header values.

    Threading and errors are the same as for `Converter`.
    """

    config_def: ClassVar[ConfigDef] = ConfigDef()

    @abstractmethod
    def configure(self, configs: Mapping[str, str]) -> None:
        """Configure the converter. `configs` contains its properties without their prefix."""

    @abstractmethod
    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Deserialize the value of one header."""

    @abstractmethod
    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Value
    ) -> bytes | None:
        """Serialize the value of one header."""

    def close(self) -> None:
        """Release all resources. Called once, after all other methods."""
