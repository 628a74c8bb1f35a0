"""Removal of records in revoked partitions from a sink task's pending deliveries."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from connect_py.api.batch import Batch
from connect_py.api.record import SinkRecord, TopicPartition
from connect_py.task.transformation_chain import Delivery


def without_partitions(
    deliveries: Iterable[Delivery], partitions: Iterable[TopicPartition]
) -> list[Delivery]:
    """Remove the rows consumed from these partitions, even if they were rerouted."""
    revoked = set(partitions)
    if not revoked:
        return list(deliveries)
    remaining: list[Delivery] = []
    for delivery in deliveries:
        remaining_rows: Delivery | None
        if isinstance(delivery, Batch):
            remaining_rows = _batch_without(delivery, revoked)
        else:
            rows: list[SinkRecord] = [
                r for r in delivery if r.origin.topic_partition not in revoked
            ]
            remaining_rows = rows or None
        if remaining_rows is not None:
            remaining.append(remaining_rows)
    return remaining


def _batch_without(batch: Batch, revoked: set[TopicPartition]) -> Batch | None:
    numbers = {tp.partition for tp in revoked if tp.topic == batch.origin.topic}
    mask = pa.array([p not in numbers for p in batch.origin.partitions.to_pylist()], pa.bool_())
    if mask.true_count == len(batch):
        return batch
    return batch.where(mask) if mask.true_count else None
