"""Converters: between the bytes of Kafka and Connect's values."""

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
    """Consecutive messages that share one schema, converted.

    `column` has `stop - start` rows. A message that failed is null there and named in `failures`,
    by its index in the *call's* sequence; the worker takes it out of the batch and reports it.
    """

    start: int
    stop: int  # exclusive
    column: Column
    failures: Mapping[int, Exception] = field(default_factory=dict)


class Converter(ABC):
    """Turns message bytes into values and back, for keys or for values.

    One instance serves one side of one task and is used on the task's thread alone. It may keep
    caches. Any error it raises is a failure of that one record, subject to `errors.tolerance`;
    `RetriableError` is retried for as long as `errors.retry.timeout` allows (a registry that is
    away raises it, and partitions pause meanwhile).
    """

    config_def: ClassVar[ConfigDef] = ConfigDef()

    @abstractmethod
    def configure(self, configs: Mapping[str, str], *, is_key: bool) -> None:
        """Take the converter's own properties, prefix cut off. Called once, before anything else.

        Raises:
            ConfigError: A property is not acceptable.
        """

    @abstractmethod
    def to_connect(
        self, topic: str, data: bytes | None, headers: RawHeaders = ()
    ) -> SchemaAndValue:
        """Convert one message: the reference that `to_batch` must equal.

        Raises:
            DataError: The bytes are not of this format.
            RetriableError: A server that is needed is away.
        """

    @abstractmethod
    def from_connect(
        self, topic: str, schema: Schema | None, value: Value, headers: MutableHeaders | None = None
    ) -> bytes | None:
        """Convert one value to bytes; None makes a message without bytes.

        `headers` are those of the message, converted; more may be appended. None: the message has
        no place for any.

        Raises:
            DataError: The value cannot be written in this format.
            RetriableError: A server that is needed is away.
        """

    def to_batch(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[RawHeaders] | None = None
    ) -> Sequence[ColumnRun]:
        """Convert messages of one topic to columns.

        Runs cover all messages, in order, without gap; a null message never ends a run. Row for row
        the result is what `to_connect` gives, failures included.

        Raises:
            NotColumnar: These messages go through `to_connect`, one by one.
            RetriableError: A server that is needed is away; the same messages will come again.
        """
        raise NotColumnar(type(self).__name__)

    def close(self) -> None:
        """Let go of connections. Called once, last."""


class HeaderConverter(ABC):
    """Turns the bytes of headers into values and back. Same life and errors as `Converter`."""

    config_def: ClassVar[ConfigDef] = ConfigDef()

    @abstractmethod
    def configure(self, configs: Mapping[str, str]) -> None:
        """Take the converter's own properties, prefix cut off."""

    @abstractmethod
    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Convert one header's bytes."""

    @abstractmethod
    def from_connect_header(
        self, topic: str, key: str, schema: Schema | None, value: Value
    ) -> bytes | None:
        """Convert one header's value."""

    def close(self) -> None:
        """Let go of what is held. Called once, last."""
