"""Rewind tables together with their source offsets, or preview the effects.

The connector must be stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.record import TopicPartition
from connect_py.plurals import pluralize
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.ledger import ledger_key
from connectors.iceberg_tools.history.table_diff import read_metadata
from connectors.iceberg_tools.operations.kafka_group import member_count
from connectors.iceberg_tools.operations.rollback import RollbackPreview, preview_of
from connectors.iceberg_tools.operations.table_operation import (
    Name,
    TableArguments,
    TableOperation,
    TableTarget,
)
from connectors.iceberg_tools.refs.table_rewind import RewindMode, RewindRequest
from connectors.iceberg_tools.refs.table_rewind import rewind as rewind_table

_KAFKA_SECONDS = 15


class PreviewRewindArguments(TableArguments, frozen=True, kw_only=True):
    """Selects the state to rewind to and additional tables."""

    to: str
    also: tuple[Name, ...] = ()
    all_tables: bool = False  # all tables in `iceberg.tables`
    mode: RewindMode | None = None  # None to evaluate both modes


@dataclass(frozen=True, slots=True)
class RewindPreview:
    """The effects of a rewind."""

    group: str
    tables: list[RollbackPreview]
    other_tables: list[str]  # other tables of the connector, which do not change
    refused: list[str]
    # messages about offsets that a replay needs but that the topics no longer contain
    missing: list[str]


def preview_rewind(target: TableTarget, arguments: PreviewRewindArguments) -> RewindPreview:
    """Return the effects of a rewind. Read only.

    Raises:
        ConfigError: No connector is used, or `all_tables` is set and the connector lists no tables.
        NotInHistoryError: A table does not have this state.
        ConnectError: Kafka does not respond.
    """
    connector, kafka = _connector(target), target.kafka()
    names = _tables(connector, arguments)
    members = member_count(kafka, connector.connect_group)
    previews = [_preview(target, name, arguments.to) for name in names]
    refused = [f"table {each.table}: {each.refused}" for each in previews if each.refused]
    refused += _members_refusal(connector, members)
    missing = [] if arguments.mode is RewindMode.SKIP else _missing_offsets(kafka, previews)
    refused += missing if arguments.mode is RewindMode.REPLAY else []
    other_tables = sorted(set(connector.tables) - set(names))
    return RewindPreview(connector.connect_group, previews, other_tables, refused, missing)


def _connector(target: TableTarget) -> IcebergSinkConfig:
    if target.connector is None:
        raise ConfigError(
            "use_connector", "must be true, because a rewind moves the offsets of a connector"
        )
    return target.connector


def _tables(connector: IcebergSinkConfig, arguments: PreviewRewindArguments) -> list[str]:
    if arguments.all_tables and not connector.tables:
        raise ConfigError(
            "--all-tables",
            "the connector determines its tables from records; name each table with --also",
        )
    all_tables = connector.tables if arguments.all_tables else ()
    return list(dict.fromkeys([arguments.table, *arguments.also, *all_tables]))


def _preview(target: TableTarget, name: str, to: str) -> RollbackPreview:
    connector = _connector(target)
    ref = connector.table(name).commit_branch or MAIN
    return preview_of(
        name, target.lake.run(name, read_metadata), ref, to, {connector.connect_group: ref}
    )


def _members_refusal(connector: IcebergSinkConfig, members: int) -> list[str]:
    if not members:
        return []
    group = f"group {connector.connect_group} has {pluralize(members, 'member')}"
    return [f"the connector is running: {group}; stop it first"]


class RewoundTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table in a rewind that a user has previewed."""

    table: Name
    head: int  # head of the ref; the rewind is refused if it has changed
    snapshot: int


class RewindArguments(TableArguments, frozen=True, kw_only=True):
    """A rewind that a user has previewed. `table` is the first table of `tables`."""

    mode: RewindMode
    tables: Annotated[tuple[RewoundTable, ...], msgspec.Meta(min_length=1)]


@dataclass(frozen=True, slots=True)
class RewoundTables:
    """The new heads of the rewound tables, in order."""

    heads: dict[str, int] = field(default_factory=dict)


def rewind(target: TableTarget, arguments: RewindArguments) -> RewoundTables:
    """Check the rewind again, and rewind the tables with one commit each.

    Raises:
        ConnectError: The connector is running, offsets are missing, or a table has changed. The
            preceding tables have been rewound. Repeating the request resumes the rewind.
    """
    connector, kafka = _connector(target), target.kafka()
    group = connector.connect_group
    refused = _members_refusal(connector, member_count(kafka, group))
    if arguments.mode is RewindMode.REPLAY:
        previews = [_preview(target, each.table, str(each.snapshot)) for each in arguments.tables]
        refused += _missing_offsets(kafka, previews)
    if refused:
        raise ConnectError("; ".join(refused))
    rewound = RewoundTables()
    for each in arguments.tables:
        target.progress(f"rewinding {each.table}")
        ref = connector.table(each.table).commit_branch or MAIN
        request = RewindRequest(
            ref, each.head, each.snapshot, arguments.mode, ledger_key(group), group
        )
        rewound.heads[each.table] = target.lake.run(each.table, rewind_table, request)
    return rewound


def _missing_offsets(kafka: Mapping[str, Any], previews: Sequence[RollbackPreview]) -> list[str]:
    """Return a message for each partition that lacks some of the offsets that a replay needs.

    Raises:
        ConnectError: Kafka does not respond.
    """
    first_offsets: dict[TopicPartition, int] = {}
    for part in (part for each in previews for effect in each.effects for part in effect.again):
        first = part.first or 0
        first_offsets[part.partition] = min(first_offsets.get(part.partition, first), first)
    starts = _log_starts(kafka, list(first_offsets))
    return [
        f"{tp.topic}-{tp.partition}: offsets {first} to {starts[tp] - 1} are no longer in the topic"
        for tp, first in first_offsets.items()
        if first < starts[tp]
    ]


def _log_starts(
    kafka: Mapping[str, Any], partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    if not partitions:
        return {}
    earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # untyped in the client
    request = {KafkaPartition(tp.topic, tp.partition): earliest for tp in partitions}
    admin = AdminClient(dict(kafka))
    try:
        futures = admin.list_offsets(request, request_timeout=_KAFKA_SECONDS)
        starts = {
            (tp.topic, tp.partition): future.result().offset for tp, future in futures.items()
        }
    except KafkaException as error:
        raise ConnectError(
            f"Kafka failed to return the first offsets of the topics: {error}"
        ) from error
    return {tp: starts[tp.topic, tp.partition] for tp in partitions}


PREVIEW_REWIND = TableOperation(
    "preview-rewind", PreviewRewindArguments, RewindPreview, preview_rewind
)
REWIND = TableOperation("rewind", RewindArguments, RewoundTables, rewind)
