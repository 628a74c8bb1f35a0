"""What a change of the connector's offsets over REST means: rule 21 of the protocol, asked while it
is stopped.

Nothing is written here. The worker makes one group commit of the answer, which is the atomic point;
tables follow when the next coordinator opens them, also after a death in between.
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
    """Return what to commit to the group, all in one request; None: the offset is to be deleted.

    Tables say how often the connector was rewound before, so the catalog is asked.

    Args: offsets: The next ones to read; None resets a partition to where a new connector would
        begin. When all
            partitions of the group are reset, so are those that it lost.

    Raises: ConnectError: An offset is not in the log, a partition is not consumed, or cluster or
        catalog do not answer.
    """
    topics = describe_topics(cluster)
    group = group_offsets(cluster, topics)
    lookups = _look_up(config, services, likely_tables(config, topics))
    first = first_positions(cluster, topics)
    wanted: dict[TopicPartition, int] = {}
    never_ran = not group and not any(found.ledger for found in lookups.values())
    if never_ran and not offsets:
        return {}
    if never_ran or (
        all(offset is None for offset in offsets.values()) and offsets.keys() >= group.keys()
    ):
        wanted.update(first)
    removed: list[TopicPartition] = []
    for tp, offset in offsets.items():
        if tp in first:
            wanted[tp] = first[tp] if offset is None else _checked(tp, offset, topics[tp.topic])
        elif offset is None:
            removed.append(tp)
        else:
            raise ConnectError(
                f"connector {cluster.connector} does not consume {_words(tp)}, or it does not exist"
            )
    ids = {topic: info.id for topic, info in topics.items()}
    altered = altered_group(wanted, group, lookups, ids, cluster.start_number, uuid.uuid4().hex[:8])
    answer: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(removed)
    for tp, at in altered.items():
        assert at.mark is not None
        log.info(
            "%s is read from offset %d on, as generation %d", tp, at.offset, at.mark.generation
        )
        answer[tp] = OffsetAndMetadata(at.offset, at.mark.to_text())
    return answer


def _checked(tp: TopicPartition, offset: int, info: TopicInfo) -> int:
    """An offset that the next coordinator can go on from."""
    start, end = info.log_starts[tp.partition], (info.log_ends or info.log_starts)[tp.partition]
    if not start <= offset <= end:
        raise ConnectError(
            f"offset {offset} is not in the log of {_words(tp)}, which goes from {start} to {end}"
        )
    return offset


def _words(tp: TopicPartition) -> str:
    return f"partition {tp.partition} of topic {tp.topic}"


def _look_up(
    config: IcebergSinkConfig, services: SharedServices, tables: Iterable[str]
) -> dict[str, Lookup]:
    """The ledgers of those tables that exist. CatalogUnavailableError and its like: the catalog
    does not answer."""
    found: dict[str, Lookup] = {}
    names = list(tables)
    if not names:
        return found
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
            found[name] = look_up(loaded.view)
    return found
