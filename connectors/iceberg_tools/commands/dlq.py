"""`connect-py dlq`: lists, replays, and deletes the dead-letter records of an Iceberg sink."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConfigError
from connect_py.plurals import pluralize
from connectors.iceberg_tools.commands.connector_json import parse_connector
from connectors.iceberg_tools.commands.kafka_options import KafkaOptions
from connectors.iceberg_tools.commands.table_options import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from connect_py.api.sink_host import SinkHost
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg_tools.dead_letters.dead_letter_record import (
        DeadLetterRecord,
        DeadLetterState,
        Fix,
        RecordId,
    )
    from connectors.iceberg_tools.dead_letters.dead_letter_table import DeadLetterTable

HEADINGS = ("RECORDS", "STATE", "TOPIC", "REASON", "STAGE", "LAST FAILED")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options for a connector and its worker."""

    config: Annotated[
        Path,
        typer.Option(
            "--config",
            help="Connector file, in the format of the REST API.",
            exists=True,
            dir_okay=False,
        ),
    ]
    worker: Worker = None


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Selects dead-letter records by position, topic, and reason. The default is all records."""

    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", show_default="all")
    ] = None
    topic: Annotated[
        str | None, typer.Option(help="Only records that were read from this topic.")
    ] = None
    reason: Annotated[
        str | None,
        typer.Option(help="Only records that failed for this reason, such as value_converter."),
    ] = None

    def positions(self) -> set[RecordId]:
        """Return the selected positions, or an empty set for all records.

        Raises:
            ConfigError: An argument is not of the form topic/partition/offset.
        """
        positions = set()
        for argument in self.arguments or ():
            topic, partition, offset = (["", "", *argument.rsplit("/", 2)])[-3:]
            if not topic or not partition.isdecimal() or not offset.isdecimal():
                raise ConfigError("", f"{argument} is not of the form topic/partition/offset")
            positions.add((topic, int(partition), int(offset)))
        return positions

    def matches(self, dead_letter: DeadLetterRecord) -> bool:
        """Return True if a record has the selected topic and reason."""
        return self.topic in (None, dead_letter.topic) and self.reason in (None, dead_letter.reason)


@command(json=True)
def list_(context: CommandContext, *, sink: SinkOptions, kafka: KafkaOptions) -> None:
    """Count the records by topic, reason, stage, and state.

    The states are `new`, `replayed`, and `failed-again`, which means that the replay failed.
    Without --bootstrap-server or --worker, the replay topic is not read, and a successfully
    replayed record is listed in its previous state.
    """
    _, records, states = _with_states(context, sink, kafka)
    counts: Counter[tuple[str, ...]] = Counter()
    last_failures: dict[tuple[str, ...], str] = {}
    for record, state in zip(records, states, strict=True):
        group = (record.topic, record.reason, record.stage, state.value)
        counts[group] += 1
        failed_at = "" if record.failed_at is None else record.failed_at.isoformat()
        last_failures[group] = max(last_failures.get(group, ""), failed_at)
    names = ("topic", "reason", "stage", "state")
    document = [
        {
            **dict(zip(names, group, strict=True)),
            "letters": counts[group],
            "last_failed_at": last_failures[group] or None,
        }
        for group in sorted(counts)
    ]
    context.show(document, _count_lines(counts, last_failures))


def _count_lines(
    counts: Counter[tuple[str, ...]], last_failures: dict[tuple[str, ...], str]
) -> Iterator[str]:
    rows = [
        HEADINGS,
        *(
            (str(counts[group]), group[3], *group[:3], last_failures[group])
            for group in sorted(counts)
        ),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join([row[0].rjust(widths[0]), *cells[1:]]).rstrip()
    yield f"{counts.total():>{widths[0]}}  total"


@command()
def delete(
    context: CommandContext,
    *,
    sink: SinkOptions,
    selection: SelectionOptions,
    state: Annotated[
        str | None,
        typer.Option(
            help="Only records in this state: new, failed-again, or replayed (needs Kafka)."
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="AGE", help="Only records that failed more than AGE ago: 30d, 12h, or 45m."
        ),
    ] = None,
    kafka: KafkaOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the number of records.")
    ] = False,
) -> None:
    """Delete records from their table, selected by position, topic, reason, state, or age.

    Run this command regularly with --older-than to limit the retention of dead-letter records.
    """
    from connectors.iceberg_tools.dead_letters.dead_letter_record import DeadLetterState

    positions = selection.positions()
    age = None if older_than is None else _age(older_than)
    if not (positions or selection.topic or selection.reason or state or age is not None):
        raise ConfigError(
            "", "select records by position, --topic, --reason, --state, or --older-than"
        )
    if state is not None and state not in [each.value for each in DeadLetterState]:
        raise ConfigError(
            "--state", f"must be one of {', '.join(each.value for each in DeadLetterState)}"
        )
    has_kafka = kafka.bootstrap_server is not None or sink.worker is not None
    if state == DeadLetterState.REPLAYED.value and not has_kafka:
        raise ConfigError(
            "--state",
            "replayed needs --bootstrap-server or --worker, because this state is read from the "
            "replay topic",
        )
    table, records, states = _with_states(context, sink, kafka)
    before = None if age is None else datetime.now(UTC) - age
    selected = [
        record
        for record, record_state in zip(records, states, strict=True)
        if (not positions or record.record_id in positions)
        and selection.matches(record)
        and state in (None, record_state.value)
        and (before is None or (record.failed_at is not None and record.failed_at < before))
    ]
    if dry_run:
        typer.echo(f"{len(selected)} of {pluralize(len(records), 'record')} would be deleted")
        return
    table.delete(selected)
    typer.echo(f"{len(selected)} of {pluralize(len(records), 'record')} deleted")


@command()
def show(context: CommandContext, *, sink: SinkOptions, selection: SelectionOptions) -> None:
    """Print dead-letter records, one JSON object per line. Binary data is encoded in base64.

    Edit `key`, `value`, or `headers` in the output, and pass the output to `replay --fixed`.
    """
    config, host = parse_connector(context, sink.config, sink.worker)
    table = _table(context, config, host)
    for dead_letter in _dead_letters(table, selection, selection.positions()):
        typer.echo(json.dumps(dead_letter.to_json(), default=str))


@command()
def replay(
    context: CommandContext,
    *,
    sink: SinkOptions,
    selection: SelectionOptions,
    fixed: Annotated[
        Path | None,
        typer.Option(
            help="File of fixed records in the format of `show`. Only these records are replayed.",
            exists=True,
        ),
    ] = None,
    only_missing_keys: Annotated[
        bool,
        typer.Option(
            "--only-missing-keys",
            help="For merged tables without ordering columns: insert only rows whose key does not "
            "exist.",
        ),
    ] = False,
    kafka: KafkaOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the number of records.")
    ] = False,
) -> None:
    """Have the connector process records again with their original topic, partition, and offset.

    The records are written to the connector's replay topic. A record that has already been replayed
    is skipped unless it has failed again.
    """
    from connectors.iceberg.config.keys import REPLAY_TOPIC
    from connectors.iceberg_tools.dead_letters.dead_letter_record import Fix, latest
    from connectors.iceberg_tools.dead_letters.replay_log import ReplayLog
    from connectors.iceberg_tools.dead_letters.replay_rules import check_merged

    config, host = parse_connector(context, sink.config, sink.worker)
    if config.replay_topic is None:
        raise ConfigError(
            REPLAY_TOPIC, "must be set, because the connector replays records from this topic"
        )
    check_merged(config, only_missing_keys=only_missing_keys)
    fixes = None
    if fixed is not None:
        fixes = [
            Fix.of(json.loads(line)) for line in fixed.read_text().splitlines() if line.strip()
        ]
    positions = selection.positions() or {fix.record_id for fix in fixes or ()}
    records = latest(_dead_letters(_table(context, config, host), selection, positions))
    if fixes is not None:
        records = _fixed(records, fixes)
    log = ReplayLog(kafka.settings(host), config.replay_topic, config.connector)
    if dry_run:
        # do not open the log, which would create the topic and fence a replay in progress
        replayed = log.written()
        count = sum(record.next_replay() not in replayed for record in records)
        typer.echo(
            f"{pluralize(count, 'record')} would be replayed; already replayed: "
            f"{len(records) - count}"
        )
        return
    count = log.open().write(records)
    typer.echo(f"{pluralize(count, 'record')} replayed; already replayed: {len(records) - count}")


def _table(
    context: CommandContext, config: IcebergSinkConfig, host: SinkHost | None
) -> DeadLetterTable:
    from connectors.iceberg_tools.dead_letters.dead_letter_table import DeadLetterTable

    return DeadLetterTable(config, context.services() if host is None else host)


def _with_states(
    context: CommandContext, sink: SinkOptions, kafka: KafkaOptions
) -> tuple[DeadLetterTable, list[DeadLetterRecord], list[DeadLetterState]]:
    """Return the dead-letter table, all records, and their states in the same order.

    The replay topic is read if a Kafka cluster is specified.
    """
    from connectors.iceberg_tools.dead_letters.dead_letter_record import states
    from connectors.iceberg_tools.dead_letters.replay_log import ReplayLog

    config, host = parse_connector(context, sink.config, sink.worker)
    table = _table(context, config, host)
    heads = table.heads()
    replayed = set()
    has_kafka = kafka.bootstrap_server is not None or host is not None
    if has_kafka and config.replay_topic is not None:
        settings = kafka.settings(host)
        replayed = ReplayLog(settings, config.replay_topic, config.connector).written()
    return table, heads, states(heads, replayed)


def _age(age: str) -> timedelta:
    """Parse an age.

    Raises:
        ConfigError: The value is not of the form 30d, 12h, or 45m.
    """
    units = {"d": "days", "h": "hours", "m": "minutes"}
    if not age[:-1].isdecimal() or age[-1] not in units:
        raise ConfigError("--older-than", f"{age} is not of the form 30d, 12h, or 45m")
    return timedelta(**{units[age[-1]]: int(age[:-1])})


def _dead_letters(
    table: DeadLetterTable, selection: SelectionOptions, positions: set[RecordId]
) -> Iterable[DeadLetterRecord]:
    """Return the selected records. An empty `positions` selects all positions.

    Raises:
        ConfigError: A position has no record.
    """
    if not positions:
        return table.records(topic=selection.topic, reason=selection.reason)
    records = list(table.records(positions))
    for missing in sorted(positions - {record.record_id for record in records}):
        raise ConfigError(
            "", f"{'/'.join(map(str, missing))} is not a dead-letter record of this connector"
        )
    return [record for record in records if selection.matches(record)]


def _fixed(records: list[DeadLetterRecord], fixes: list[Fix]) -> list[DeadLetterRecord]:
    """Return the records with their fixes applied.

    Raises:
        ConfigError: A fix does not match any record.
    """
    by_position = {record.record_id: record for record in records}
    fixed_records = []
    for fix in fixes:
        record = by_position.get(fix.record_id)
        if record is None:
            raise ConfigError(
                "",
                f"the fixed record {'/'.join(map(str, fix.record_id))} is not a dead-letter "
                "record of this connector",
            )
        fixed_records.append(replace(record, **fix.changes))
    return fixed_records
