"""`connect-py rewind`: tables and their source offsets go back together, on a stopped connector."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect_py.api.command import confirmed, uses_java
from connect_py.api.errors import ConfigError, ConnectError
from connectors.iceberg.commands.exit_status import errors_exit
from connectors.iceberg.commands.kafka_group import member_count
from connectors.iceberg.commands.kafka_options import BootstrapServer, ClientConfig, Properties, client_settings
from connectors.iceberg.commands.rollback import Preview, look, preview_lines
from connectors.iceberg.commands.table_options import POINT, AsJson, Table, TablePlace, Worker, table_place

if TYPE_CHECKING:
    from connect_py.api.record import TopicPartition
    from connectors.iceberg.refs.table_rewind import RewindMode

REFUSED, UNDECIDED = 1, 2


@uses_java
def rewind(
    table: Table,
    to: Annotated[str, typer.Option(help=f"The state to go back to: {POINT}. With several tables: a time or a tag.")],
    config: Annotated[Path, typer.Option("--config", help="The connector as it is posted.")],
    replay: Annotated[bool, typer.Option("--replay", help="The connector reads again what leaves.")] = False,
    skip: Annotated[bool, typer.Option("--skip", help="The table goes on from now, without what leaves.")] = False,
    also: Annotated[list[str] | None, typer.Option(help="Another table of the connector; may be repeated.")] = None,
    all_tables: Annotated[bool, typer.Option("--all-tables", help="All tables of `iceberg.tables`.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    bootstrap_server: BootstrapServer = None,
    kafka_property: Properties = None,
    client_config: ClientConfig = None,
    worker: Worker = None,
    as_json: AsJson = False,
) -> None:
    """Take tables back to an earlier state, and the connector's positions in them with it.

    Without --replay and --skip it is a preview. Stop the connector before (PUT /connectors/NAME/stop). Each table is
    one change; after an interruption run it again. Exit status 0: done, or it may be done; 1: refused; 2: not known.
    """
    with errors_exit(UNDECIDED):
        from connectors.iceberg.history.table_diff import read_metadata
        from connectors.iceberg.refs.table_rewind import RewindMode

        mode = _mode(replay=replay, skip=skip, asks=not (as_json and not yes))
        place = table_place(table, config, worker, None, "")
        assert place.connector is not None
        group, names = place.connector.connect_group, _tables(table, also or (), place, all_tables=all_tables)
        kafka = client_settings(bootstrap_server, kafka_property, client_config, place.host)
        members = member_count(kafka, group)
        with place.open() as lake:
            previews = []
            for name in names:
                ref = place.connector.table(name).commit_branch or "main"
                previews.append(look(name, lake.run(name, read_metadata), ref, to, {group: ref}))
            refused = [f"table {each.table}: {each.refused}" for each in previews if each.refused]
            refused += [f"the connector runs: group {group} has {members} members; stop it first"] if members else []
            missing = _missing_offsets(kafka, previews) if mode is not RewindMode.SKIP else []
            refused += missing if mode is RewindMode.REPLAY else []
            others = sorted(set(place.connector.tables) - set(names))
            if not as_json:
                for line in _lines(previews, others, mode, missing):
                    typer.echo(line)
            for text in refused:
                typer.echo(f"connect-py: {text}", err=True)
            heads: dict[str, int] = {}
            if mode is not None and not refused:
                if not yes and not confirmed("Rewind?"):
                    raise typer.Exit(REFUSED)
                heads = _do(lake, previews, mode, group)
    if as_json:
        typer.echo(json.dumps({
            "group": group, "mode": mode.value if mode else None, "tables": [each.to_json() for each in previews],
            "other_tables": others, "refused": refused, "missing": missing, "heads": heads,
        }, indent=2))  # fmt: skip
    elif heads:
        for name, head in heads.items():
            typer.echo(f"{name} is at snapshot {head}")
    raise typer.Exit(REFUSED if refused else 0)


def _mode(*, replay: bool, skip: bool, asks: bool) -> RewindMode | None:
    """None: a preview.

    Raises:
        ConfigError: Both were said, or it would have to ask, which would spoil what goes to a machine.
    """
    from connectors.iceberg.refs.table_rewind import RewindMode

    if replay and skip:
        raise ConfigError("", "say one of --replay and --skip, or none of them for a preview")
    if (replay or skip) and not asks:
        raise ConfigError("--json", "needs --yes with --replay or --skip")
    return RewindMode.SKIP if skip else RewindMode.REPLAY if replay else None


def _tables(table: str, also: Sequence[str], place: TablePlace, *, all_tables: bool) -> list[str]:
    """The tables to rewind.

    Raises:
        ConfigError: The connector names none, so that they must be given.
    """
    assert place.connector is not None
    if all_tables and not place.connector.tables:
        raise ConfigError("--all-tables", "the connector takes its tables from records: name each with --also")
    return list(dict.fromkeys([table, *also, *(place.connector.tables if all_tables else ())]))


def _do(lake: Any, previews: Sequence[Preview], mode: RewindMode, group: str) -> dict[str, int]:
    from connectors.iceberg.protocol.ledger import ledger_key
    from connectors.iceberg.refs.table_rewind import RewindRequest
    from connectors.iceberg.refs.table_rewind import rewind as rewind_table

    heads = {}
    for each in previews:
        request = RewindRequest(each.ref, each.head, each.snapshot, mode, ledger_key(group), group)
        heads[each.table] = lake.run(each.table, rewind_table, request)
    return heads


def _missing_offsets(kafka: Mapping[str, str], previews: Sequence[Preview]) -> list[str]:
    """Offsets that would be read again, and that the topic has no more.

    Raises:
        ConnectError: Kafka does not answer.
    """
    wanted: dict[TopicPartition, int] = {}
    for part in (part for each in previews for effect in each.effects for part in effect.again):
        first = part.first or 0
        wanted[part.partition] = min(wanted.get(part.partition, first), first)
    starts = _log_starts(kafka, list(wanted))
    return [
        f"{tp.topic}-{tp.partition}: offsets {first} to {starts[tp] - 1} are no longer in the topic"
        for tp, first in wanted.items()
        if first < starts[tp]
    ]


def _log_starts(kafka: Mapping[str, str], partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as Asked
    from confluent_kafka.admin import AdminClient, OffsetSpec

    if not partitions:
        return {}
    earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # the client's
    asked = {Asked(tp.topic, tp.partition): earliest for tp in partitions}
    admin = AdminClient(dict(kafka))
    try:
        answers = admin.list_offsets(asked, request_timeout=15)
        found = {(tp.topic, tp.partition): future.result().offset for tp, future in answers.items()}
    except KafkaException as error:
        raise ConnectError(f"Kafka does not say where the topics begin: {error}") from error
    return {tp: found[tp.topic, tp.partition] for tp in partitions}


def _lines(
    previews: Sequence[Preview], others: Sequence[str], mode: RewindMode | None, missing: Sequence[str]
) -> Iterator[str]:
    """The preview for people."""
    skips = mode is not None and mode.value == "skip"
    for each in previews:
        yield from preview_lines(each, skips=skips)
    if others:
        yield f"other tables of the connector stay as they are: {', '.join(others)}"
    if mode is None:
        for text in missing:
            yield f"--replay would be refused: {text}"
        yield "nothing was changed: say --replay or --skip"
