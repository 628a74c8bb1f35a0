"""Reads a connector's topics and group offsets from Kafka for the commit protocol."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from connect_py.api.cluster import SinkCluster
from connect_py.api.errors import NotFoundError, RetriableError
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.protocol.offset_metadata import GroupOffset
from connectors.iceberg.protocol.source_progress import TopicInfo
from connectors.iceberg.routing.router import tables_of_topic

_LATEST = ("latest", "largest", "end")  # values of `auto.offset.reset` that mean the end


def describe_topics(cluster: SinkCluster) -> dict[str, TopicInfo]:
    """Return the IDs and log ranges of the connector's topics.

    Raises:
        RetriableError: The cluster does not respond, or a topic does not exist.
    """
    described: dict[str, TopicInfo] = {}
    for topic in cluster.topics():
        try:
            topic_id = cluster.topic_id(topic)
            partitions = [TopicPartition(topic, p) for p in range(cluster.partition_count(topic))]
        except NotFoundError as error:
            raise RetriableError(f"topic {topic} does not exist: {error}") from error
        requested_ms = int(time.time() * 1000)
        ranges = cluster.log_range(partitions)
        starts, ends = (tuple(ranges[p][side] for p in partitions) for side in (0, 1))
        described[topic] = TopicInfo(topic_id, starts, ends, requested_ms)
    return described


def partitions_of(topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    """Return all partitions of the topics."""
    return [
        TopicPartition(topic, number)
        for topic, info in topics.items()
        for number in range(len(info.log_starts))
    ]


def group_offsets(
    cluster: SinkCluster, topics: Mapping[str, TopicInfo]
) -> dict[TopicPartition, GroupOffset]:
    """Return the group offsets with their metadata.

    Raises:
        RetriableError: The cluster does not respond.
    """
    committed = cluster.committed(partitions_of(topics))
    return {tp: GroupOffset.of(offset.offset, offset.metadata) for tp, offset in committed.items()}


def starts_at_end(cluster: SinkCluster) -> bool:
    """Return True if a group without offsets starts at the end of its topics."""
    return str(cluster.client_config("consumer").get("auto.offset.reset", "earliest")) in _LATEST


def first_positions(
    cluster: SinkCluster, topics: Mapping[str, TopicInfo]
) -> dict[TopicPartition, int]:
    """Return the offsets at which partitions without group offsets start.

    If the consumer reads only committed records, the end of a partition precedes open transactions.

    Raises:
        RetriableError: The cluster does not respond.
    """
    partitions = partitions_of(topics)
    if not starts_at_end(cluster):
        return {tp: topics[tp.topic].log_starts[tp.partition] for tp in partitions}
    committed = cluster.client_config("consumer").get("isolation.level") == "read_committed"
    return {tp: end for tp, (_, end) in cluster.log_range(partitions, committed=committed).items()}


def likely_tables(config: IcebergSinkConfig, topics: Iterable[str]) -> list[str]:
    """Return the destination tables that can be determined before records are read."""
    names = [*config.tables]
    for topic in topics if config.topic_rules else ():
        names += tables_of_topic(config, topic)
    tables = [name for name in dict.fromkeys(names) if config.writes(name)]
    if config.changelog_suffix is not None:
        tables += [name + config.changelog_suffix for name in tables]
    # The dead-letter table is opened and committed first, because the offset of a bad record may
    # advance only after its dead-letter record has been committed.
    dead_letters = [] if config.dead_letter_table is None else [config.dead_letter_table]
    return list(dict.fromkeys([*dead_letters, *tables]))
