"""`Consuming`: what the loop of a sink task needs of its consumer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from confluent_kafka import KafkaError

from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.task.message_run import MessageRun


class Consuming(Protocol):
    """The part of `SinkConsumer` that the loop uses."""

    @property
    def assigned(self) -> frozenset[TopicPartition]: ...

    @property
    def cut_off(self) -> str | None: ...

    def subscribe(self, topics: Sequence[str]) -> None: ...

    def topics(self, timeout: float) -> Mapping[str, int]: ...

    def poll(self, limit: int, timeout: float) -> list[MessageRun]: ...

    def ends(self) -> Mapping[TopicPartition, int]: ...

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None: ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...

    def commit_and_wait(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> KafkaError | None: ...

    def close(self) -> None: ...
