"""Handles REST requests that change the offsets of a stopped connector.

This module writes nothing. The worker commits the result in one group offset commit, which is the
atomic step. The next coordinator updates the tables when it opens them, even after a crash. See
rule 21 of the commit protocol.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping

from connect_py.api.cluster import SinkCluster
from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.api.service import SharedServices
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import worker_spark_config
from connectors.iceberg.coordinator.kafka_metadata import (
    describe_topics,
    first_positions,
    group_offsets,
    likely_tables,
)
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg.errors import TableMissingError
from connectors.iceberg.protocol.alter_offsets import altered_group
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.ledger import Lookup, ledger_key, look_up
from connectors.iceberg.protocol.own_refs import unpublished_branch
from connectors.iceberg.protocol.source_progress import TopicInfo

log = logging.getLogger(__name__)


def alter(
    config: IcebergSinkConfig,
    cluster: SinkCluster,
    services: SharedServices,
    offsets: Mapping[TopicPartition, int | None],
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """Return the group offsets to commit in one request. None deletes an offset.

    The tables' ledgers are read from the catalog, because they contain the offsets' generations.

    Args:
        config: The connector's configuration.
        cluster: The Kafka cluster.
        services: The worker's services.
        offsets: The next offsets to read. None resets a partition to the start position of a new
            connector. If all partitions of the group are reset, partitions without an offset are
            also reset.

    Raises:
        ConnectError: An offset is not in the log, a partition is not consumed, or the cluster or
            the catalog does not respond.
    """
    topics = describe_topics(cluster)
    group = group_offsets(cluster, topics)
    lookups = _look_up(config, services, likely_tables(config, topics))
    first = first_positions(cluster, topics)
    new_offsets: dict[TopicPartition, int] = {}
    never_ran = not group and not any(lookup.ledger for lookup in lookups.values())
    if never_ran and not offsets:
        return {}
    if never_ran or (
        all(offset is None for offset in offsets.values()) and offsets.keys() >= group.keys()
    ):
        new_offsets.update(first)
    removed: list[TopicPartition] = []
    for tp, offset in offsets.items():
        if tp in first:
            if offset is not None:
                _check_offset(tp, offset, topics[tp.topic])
            new_offsets[tp] = first[tp] if offset is None else offset
        elif offset is None:
            removed.append(tp)
        else:
            raise ConnectError(
                f"connector {cluster.connector} does not consume {_describe(tp)}, which may "
                "not exist"
            )
    ids = {topic: info.id for topic, info in topics.items()}
    altered = altered_group(
        new_offsets, group, lookups, ids, cluster.start_number, uuid.uuid4().hex[:8]
    )
    commits: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(removed)
    for tp, group_offset in altered.items():
        offset, mark = group_offset.offset, group_offset.mark
        assert mark is not None
        log.info("%s: next offset %d, generation %d", tp, offset, mark.generation)
        commits[tp] = OffsetAndMetadata(offset, mark.to_text())
    return commits


def _check_offset(tp: TopicPartition, offset: int, info: TopicInfo) -> None:
    """Check that the next coordinator can continue at an offset."""
    start, end = info.log_starts[tp.partition], (info.log_ends or info.log_starts)[tp.partition]
    if not start <= offset <= end:
        raise ConnectError(
            f"offset {offset} is not in the log of {_describe(tp)}, which has offsets {start} to "
            f"{end}"
        )


def _describe(tp: TopicPartition) -> str:
    return f"partition {tp.partition} of topic {tp.topic}"


def _look_up(
    config: IcebergSinkConfig, services: SharedServices, tables: Iterable[str]
) -> dict[str, Lookup]:
    """Return the ledgers of the existing tables.

    Raises:
        ConnectError: The catalog does not respond.
    """
    lookups: dict[str, Lookup] = {}
    names = list(tables)
    if not names:
        return lookups
    with LakeClient(
        services, worker_spark_config(config, services.worker_settings), user=config.connector
    ) as lake:
        for name in names:
            ref = config.table(name).commit_branch or MAIN
            try:
                group = config.connect_group
                loaded = lake.load(
                    name, ledger_key(group), ref, unpublished_branch=unpublished_branch(group)
                )
            except TableMissingError:
                continue
            lookups[name] = look_up(loaded.view)
    return lookups
