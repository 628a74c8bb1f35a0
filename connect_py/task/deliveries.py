"""Deliveries on their way to a sink task, without partitions that the task gave up."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from connect_py.api.batch import Batch
from connect_py.api.record import SinkRecord, TopicPartition
from connect_py.task.transformation_chain import Delivery


def without_partitions(
    deliveries: Iterable[Delivery], partitions: Iterable[TopicPartition]
) -> list[Delivery]:
    """Leave out rows that were consumed from these partitions, wherever they are routed now."""
    withdrawn = set(partitions)
    if not withdrawn:
        return list(deliveries)
    left: list[Delivery] = []
    for delivery in deliveries:
        kept: Delivery | None
        if isinstance(delivery, Batch):
            kept = _batch_without(delivery, withdrawn)
        else:
            rows: list[SinkRecord] = [
                r for r in delivery if r.origin.topic_partition not in withdrawn
            ]
            kept = rows or None
        if kept is not None:
            left.append(kept)
    return left


def _batch_without(batch: Batch, withdrawn: set[TopicPartition]) -> Batch | None:
    numbers = {tp.partition for tp in withdrawn if tp.topic == batch.origin.topic}
    mask = pa.array([p not in numbers for p in batch.origin.partitions.to_pylist()], pa.bool_())
    if mask.true_count == len(batch):
        return batch
    return batch.where(mask) if mask.true_count else None
