"""`connect-py rebuild --from-topics`: reloads a table while its connector is running."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.record import OffsetAndMetadata
from connect_py.plurals import pluralize
from connectors.iceberg.config import keys
from connectors.iceberg_tools.operations.kafka_group import remove_group, remove_topic

if TYPE_CHECKING:
    from connect_py.api.command import CommandContext
    from connect_py.api.record import TopicPartition
    from connect_py.api.sink_host import SinkHost
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg.driver.lake_client import LakeClient
    from connectors.iceberg_tools.commands.load_view import LoadView
    from connectors.iceberg_tools.history.table_diff import TableDiff
    from connectors.iceberg_tools.history.topic_rebuild import LedgerPositions

# number of attempts to publish at the connector's exact positions, so it reads nothing again
EXACT_TRIES: Final = 5
TRIES: Final = 20  # total number of attempts to publish
# keys that do not affect the rows of tables, and keys that name resources in Kafka
_OMITTED_KEYS: Final = re.compile(
    r"errors\.deadletterqueue\.(?!iceberg\.replay\.).*|consumer\.override\.group\.id|iceberg\.(control|connect)\.group-id"
    r"|iceberg\.coordinator\.transactional\.prefix|iceberg\.ext\.(changelog-suffix|tags|stop-at|only-tables)"
    r"|iceberg\.ext\.(maintenance|openlineage|notices|cycle-aggregate)\..*"
    r"|iceberg\.table\..*\.(maintenance\..*|tags|commit-branch|cycle-aggregate.*)"
)


@dataclass(slots=True)
class RebuildOptions:
    """Options of `connect-py rebuild --from-topics`."""

    table: str
    keys: tuple[str, ...]
    limit: int
    step_rows: int
    split: int
    publish: bool
    allow_missing: bool


@dataclass(slots=True)
class RebuiltTable:
    """Result of a rebuild from topics."""

    warnings: list[str] = field(default_factory=list)
    resumed: bool = False
    records: int = 0
    difference: TableDiff | None = None
    snapshot: int | None = None  # published snapshot, or None if the result was not published
    refused: str | None = None  # reason why a requested publication was refused
    # True if the connector must read the records that follow the rebuilt ones again
    behind: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "published": self.snapshot is not None,
            "snapshot": self.snapshot,
            "refused": self.refused,
            "records": self.records,
            "resumed": self.resumed,
            "behind": self.behind,
            "warnings": self.warnings,
            "difference": self.difference.to_json() if self.difference else None,
        }


class TopicsRebuild:
    """One run of `connect-py rebuild --from-topics`."""

    def __init__(
        self,
        context: CommandContext,
        props: Mapping[str, str],
        worker: Path | None,
        settings: Mapping[str, str],
        options: RebuildOptions,
    ) -> None:
        """Prepare the rebuild.

        Raises:
            ConfigError: The connector's tables cannot be rebuilt from topics.
        """
        from connectors.iceberg.config.sink_config import IcebergSinkConfig
        from connectors.iceberg.config.spark_config import worker_spark_config
        from connectors.iceberg.config.worker_defaults import with_worker_catalog
        from connectors.iceberg_tools.commands.table_options import LocalTable
        from connectors.iceberg_tools.history.topic_rebuild import TopicRebuild

        self._context = context
        self._options, self._props, self._worker, self._settings = options, props, worker, settings
        self._host = context.sink_host(props, worker, settings)
        self._config = config = IcebergSinkConfig.parse(
            with_worker_catalog(props, self._host.worker_settings)
        )
        refuse_decisions(config, options.table)
        self._spark = worker_spark_config(config, self._host.worker_settings)
        self._table = LocalTable(options.table, self._spark, config, context)
        self._rebuild = TopicRebuild(config.connector, self._table.ref, config.connect_group)
        self._tries = 0
        self.result = RebuiltTable()

    def run(self, show: Callable[..., LoadView]) -> RebuiltTable:
        """Rebuild and compare the table, and publish it if requested.

        Args:
            show: Creates the progress view of a load, given the load's end offsets.

        Raises:
            ConnectError: The rebuild failed. The loaded rows remain on the branch.
        """
        from connectors.iceberg.config.sink_config import IcebergSinkConfig
        from connectors.iceberg.config.worker_defaults import with_worker_catalog
        from connectors.iceberg.driver.lake_client import LakeClient
        from connectors.iceberg_tools.history import topic_rebuild
        from connectors.iceberg_tools.load.load import Load

        options, result = self._options, self.result
        with LakeClient(
            self._host, self._spark, user=f"{self._config.connector} (rebuild)"
        ) as lake:
            at: LedgerPositions = lake.run(options.table, topic_rebuild.positions, self._rebuild)
            starts = self._starts(at)
            self._loader, new = lake.run(options.table, topic_rebuild.begin, self._rebuild)
        result.resumed = not new
        loading = loading_connector(self._props, self._loader, options.table)
        host = self._context.sink_host(loading, self._worker, self._settings)
        loading = with_worker_catalog(loading, host.worker_settings)
        if not host.committed(starts):  # a new rebuild, or an earlier run ended before this step
            host.commit({tp: OffsetAndMetadata(offset) for tp, offset in starts.items()})
        self._ends, self._head = dict(at.reached), at.head
        with show(self._ends) as view:
            load = Load(loading, host, self._ends, options.step_rows, split=options.split)
            result.records = load.run(view.show, self._further).records
        if result.snapshot is not None:
            self._remove_from_kafka(host, IcebergSinkConfig.parse(loading).channel_topic)
        return result

    def _remove_from_kafka(self, host: SinkHost, channel: str) -> None:
        """Remove the group and the topic of a published rebuild. A failure only adds a warning."""
        admin = host.client_config("admin")
        for kind, remove, name in (
            ("group", remove_group, host.group_id),
            ("topic", remove_topic, channel),
        ):
            try:
                remove(admin, name)
            except ConnectError as error:
                self.result.warnings.append(f"{kind} {name} was not removed: {error}")

    def _starts(self, at: LedgerPositions) -> dict[TopicPartition, int]:
        """Return the first offset of each partition.

        Raises:
            ConnectError: A topic was deleted and created again since the table was filled, is no
                longer consumed, or lacks its first records.
        """
        consumed = self._host.topics()
        for topic, topic_id in at.topic_ids.items():
            if topic not in consumed:
                raise ConnectError(
                    f"the table has rows from topic {topic}, which the connector no longer consumes"
                )
            if self._host.topic_id(topic) != topic_id:
                raise ConnectError(
                    f"topic {topic} was deleted and created again; it does not contain the "
                    "table's records"
                )
        starts = {tp: start for tp, (start, _) in self._host.log_range(list(at.reached)).items()}
        late = [
            f"{tp} begins at offset {starts[tp]}, the table at {at.opened.get(tp, 0)}"
            for tp in sorted(starts)
            if starts[tp] > at.opened.get(tp, 0)
        ]
        if late and self._options.publish and not self._options.allow_missing:
            raise ConnectError(
                f"{late[0]}: earlier rows would be missing; --allow-missing publishes anyway"
            )
        self.result.warnings += late
        self.result.warnings += [
            f"{tp} begins at offset {starts[tp]}, the table at {at.opened[tp]}: the earlier "
            "rows are added"
            for tp in sorted(starts)
            if starts[tp] < at.opened.get(tp, 0)
        ]
        return starts

    def _further(self, lake: LakeClient) -> Mapping[TopicPartition, int] | None:
        """Compare the rebuilt rows with the table, and publish them if requested.

        Returns the end offsets for another load if the table has new commits, and None otherwise.

        Raises:
            ConnectError: The table had new commits in each attempt, was rolled back, or has rows
                from partitions that were not loaded.
        """
        from connectors.iceberg_tools.history import topic_rebuild

        table, rebuild, result = self._options.table, self._rebuild, self.result
        if result.difference is None:
            result.difference = self._compare(lake)
        if self._options.publish and not self._options.allow_missing:
            # imported here to reduce the startup time of commands
            from connectors.iceberg_tools.operations.rebuild import missing_rows

            result.refused = missing_rows(result.difference)
        if result.refused or not self._options.publish:
            return None
        self._tries += 1
        behind = self._tries > EXACT_TRIES
        result.snapshot = lake.run(
            table, partial(topic_rebuild.publish, behind=behind), rebuild, self._loader, self._ends
        )
        if result.snapshot is not None:
            result.behind = behind
            return None
        if self._tries == TRIES:
            raise ConnectError(
                f"{table} had new commits during each of {TRIES} attempts; run the command again"
            )
        now: LedgerPositions = lake.run(table, topic_rebuild.positions, rebuild)
        if set(now.reached) != set(self._ends):
            raise ConnectError(f"{table} now has rows from more partitions; run the command again")
        self._ends.update(now.reached)
        return self._ends

    def _compare(self, lake: LakeClient) -> TableDiff:
        """Return the differences between the branch and the table at the same positions."""
        from connectors.iceberg.protocol.own_refs import REBUILT_BRANCH
        from connectors.iceberg_tools.history.table_diff import DiffRequest, compare, read_metadata
        from connectors.iceberg_tools.operations.diff import key_columns

        table = self._options.table
        metadata = lake.run(table, read_metadata)
        points = self._head, metadata.refs[REBUILT_BRANCH]
        columns = self._options.keys or key_columns(self._table, metadata, points)
        difference: TableDiff = lake.run(
            table, compare, DiffRequest(*points, columns, self._options.limit)
        )
        return difference


def loading_connector(props: Mapping[str, str], name: str, table: str) -> dict[str, str]:
    """Return the configuration of a connector that loads a table's branch.

    It has the same converters, transformations, and rules, but none of the features that do not
    affect the table's rows, such as dead-letter records.
    """
    from connectors.iceberg.protocol.own_refs import REBUILT_BRANCH

    properties = {key: value for key, value in props.items() if not _OMITTED_KEYS.fullmatch(key)}
    return {
        **properties,
        "name": name,
        keys.ONLY_TABLES: table,
        f"{keys.TABLE_PREFIX}{table}.commit-branch": REBUILT_BRANCH,
    }


def refuse_decisions(config: IcebergSinkConfig, table: str) -> None:
    """Reject connectors whose users decide about rows, because topics do not record decisions.

    Raises:
        ConfigError: A check has an action that requires such a decision.
    """
    from connectors.iceberg.config.expectations import ExpectationAction

    for each in config.table(table).expectations:
        if each.action in (ExpectationAction.HOLD, ExpectationAction.DEAD_LETTER):
            raise ConfigError(
                f"{keys.EXPECT_PREFIX}{each.name}",
                f"has the action {each.action.value}, and the decisions about rows are not in the "
                "topics; rebuild from a change log",
            )


def lines(table: str, result: RebuiltTable) -> Iterator[str]:
    """Yield the lines of a report about a rebuild."""
    from connectors.iceberg.protocol.own_refs import BEFORE_TAG, REBUILT_BRANCH
    from connectors.iceberg_tools.commands.diff import difference_lines

    yield (
        f"{table}: {pluralize(result.records, 'record', grouped=True)} from its "
        f"topics{', continuing an earlier run' if result.resumed else ''}"
    )
    for warning in result.warnings:
        yield f"warning: {warning}"
    if result.difference is not None:
        yield from difference_lines(table, result.difference)
    if result.snapshot is not None:
        yield (
            f"published: {table} is at snapshot {result.snapshot}; the previous state is tag "
            f"{BEFORE_TAG}"
        )
        if result.behind:
            yield (
                "the connector commits too often to publish between two commits; it reads the "
                "later records again"
            )
    elif result.difference is not None and result.difference.total:
        if result.refused:
            yield f"not published: {result.refused}"
        yield (
            f"inspect them on branch {REBUILT_BRANCH}, or replace the table's rows with --publish"
        )
    else:
        yield (
            "equal: every row can be rebuilt from the topics; --publish replaces the table's rows"
        )
