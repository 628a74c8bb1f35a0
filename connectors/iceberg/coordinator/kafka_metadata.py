"""What the Kafka cluster says about the topics of a connector and about its group, in the
protocol's words."""

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

_LATEST = ("latest", "largest", "end")  # of `auto.offset.reset`, as the client library spells it


def describe_topics(cluster: SinkCluster) -> dict[str, TopicInfo]:
    """Ask for ids and log ranges of the connector's topics.

    Raises:
        RetriableError: The cluster does not answer, or a topic does not exist (yet).
    """
    described: dict[str, TopicInfo] = {}
    for topic in cluster.topics():
        try:
            topic_id = cluster.topic_id(topic)
            partitions = [TopicPartition(topic, p) for p in range(cluster.partition_count(topic))]
        except NotFoundError as error:
            raise RetriableError(f"topic {topic} does not exist: {error}") from error
        asked_ms = int(time.time() * 1000)
        ranges = cluster.log_range(partitions)
        starts, ends = (tuple(ranges[p][side] for p in partitions) for side in (0, 1))
        described[topic] = TopicInfo(topic_id, starts, ends, asked_ms)
    return described


def partitions_of(topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, number)
        for topic, info in topics.items()
        for number in range(len(info.log_starts))
    ]


def group_offsets(
    cluster: SinkCluster, topics: Mapping[str, TopicInfo]
) -> dict[TopicPartition, GroupOffset]:
    """The group's offsets of all partitions that have one, with our marks.

    Raises:
        RetriableError: The cluster does not answer.
    """
    committed = cluster.committed(partitions_of(topics))
    return {tp: GroupOffset.of(at.offset, at.metadata) for tp, at in committed.items()}


def begins_at_end(cluster: SinkCluster) -> bool:
    """Whether a group without offsets begins at the end of its topics:
    `auto.offset.reset=latest`."""
    return str(cluster.client_config("consumer").get("auto.offset.reset", "earliest")) in _LATEST


def first_positions(
    cluster: SinkCluster, topics: Mapping[str, TopicInfo]
) -> dict[TopicPartition, int]:
    """Where partitions are read from that have no offset. At the end that means: before a
    transaction that is open.

    Raises:
        RetriableError: The cluster does not answer.
    """
    partitions = partitions_of(topics)
    if not begins_at_end(cluster):
        return {tp: topics[tp.topic].log_starts[tp.partition] for tp in partitions}
    committed = cluster.client_config("consumer").get("isolation.level") == "read_committed"
    return {tp: end for tp, (_, end) in cluster.log_range(partitions, committed=committed).items()}


def likely_tables(config: IcebergSinkConfig, topics: Iterable[str]) -> list[str]:
    """The tables that will be written, as far as they can be known before any record is read."""
    found = dict.fromkeys(config.tables)
    for topic in topics if config.topic_rules else ():
        found.update(dict.fromkeys(tables_of_topic(config, topic)))
    found = {table: None for table in found if config.writes(table)}
    if config.changelog_suffix is not None:
        found.update(dict.fromkeys([name + config.changelog_suffix for name in found]))
    dead_letters = [] if config.dead_letter_table is None else [config.dead_letter_table]
    # Asked for and committed first: a row may pass its table only after its letter is kept.
    return [*dead_letters, *found]
