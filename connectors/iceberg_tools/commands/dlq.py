"""`connect-py dlq`: look at the dead letters of an Iceberg sink's table, have them tried again,
delete them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import uses_java
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.kafka_options import (
    BootstrapServer,
    ClientConfig,
    Properties,
    client_settings,
)
from connectors.iceberg_tools.commands.table_options import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connect_py.api.sink_host import SinkHost
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg_tools.dead_letters.dead_letter_record import (
        DeadLetterRecord,
        DeadLetterState,
        Fix,
        Place,
    )
    from connectors.iceberg_tools.dead_letters.dead_letter_table import DeadLetterTable

HEADINGS = ("LETTERS", "STATE", "TOPIC", "REASON", "STAGE", "LAST FAILED")

app = typer.Typer(help="Dead letters that an Iceberg sink keeps in a table.")

Config = Annotated[
    Path,
    typer.Option("--config", help="The connector as it is posted.", exists=True, dir_okay=False),
]
Topic = Annotated[str | None, typer.Option(help="Only records that were read from this topic.")]
Reason = Annotated[
    str | None,
    typer.Option(help="Only records that failed for this reason, such as value_converter."),
]
Places = Annotated[
    list[str] | None, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", show_default="all")
]


@app.command("list")
@uses_java
def list_(
    config: Config,
    bootstrap_server: BootstrapServer = None,
    kafka_property: Properties = None,
    client_config: ClientConfig = None,
    worker: Worker = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Count the letters by topic, reason, stage and state.

    States: `new`, `replayed`, and `failed-again` for those that failed in their replay. Without
    --bootstrap-server or --worker it does not read the replay topic: a letter whose replay worked
    is then shown as what it was before.
    """
    with errors_exit(1):
        _, found, known = _with_states(
            config, worker, bootstrap_server, kafka_property, client_config
        )
        dead_letters, last = (
            Counter[tuple[str, str, str, str]](),
            dict[tuple[str, str, str, str], str](),
        )
        for dead_letter, state in zip(found, known, strict=True):
            group = (dead_letter.topic, dead_letter.reason, dead_letter.stage, state.value)
            dead_letters[group] += 1
            failed_at = "" if dead_letter.failed_at is None else dead_letter.failed_at.isoformat()
            last[group] = max(last.get(group, ""), failed_at)
        if as_json:
            names = ("topic", "reason", "stage", "state")
            counts = [
                {
                    **dict(zip(names, g, strict=True)),
                    "letters": dead_letters[g],
                    "last_failed_at": last[g] or None,
                }
                for g in sorted(dead_letters)
            ]
            typer.echo(json.dumps(counts, indent=2))
            return
        lines = [
            HEADINGS,
            *(
                (str(dead_letters[g]), g[3], g[0], g[1], g[2], last[g])
                for g in sorted(dead_letters)
            ),
        ]
        widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
        for line in lines:
            cells = [text.ljust(width) for text, width in zip(line, widths, strict=True)]
            typer.echo("  ".join([line[0].rjust(widths[0]), *cells[1:]]).rstrip())
        typer.echo(f"{dead_letters.total():>{widths[0]}}  in all")


@app.command("delete")
@uses_java
def delete(
    config: Config,
    places: Places = None,
    topic: Topic = None,
    reason: Reason = None,
    state: Annotated[
        str | None,
        typer.Option(help="Only letters in this state: new, failed-again, replayed (with Kafka)."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Only letters that failed so long ago: 30d, 12h or 45m."),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    kafka_property: Properties = None,
    client_config: ClientConfig = None,
    worker: Worker = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell how many would be deleted.")
    ] = False,
) -> None:
    """Delete letters from their table, which must be named: by place, topic, reason, state or age.

    Run it every now and then with --older-than to keep letters for so long.
    """
    with errors_exit(1):
        from connectors.iceberg_tools.dead_letters.dead_letter_record import DeadLetterState

        wanted, age = _places(places), None if older_than is None else _age(older_than)
        if not (wanted or topic or reason or state or age is not None):
            raise ConfigError(
                "", "say which letters: by place, --topic, --reason, --state or --older-than"
            )
        if state is not None and state not in [each.value for each in DeadLetterState]:
            raise ConfigError(
                "--state", f"is one of {', '.join(each.value for each in DeadLetterState)}"
            )
        if state == DeadLetterState.REPLAYED.value and bootstrap_server is None and worker is None:
            raise ConfigError(
                "--state",
                "replayed needs --bootstrap-server or --worker: the replay topic knows them",
            )
        table, found, known = _with_states(
            config, worker, bootstrap_server, kafka_property, client_config
        )
        before = None if age is None else datetime.now(UTC) - age
        chosen = [
            dead_letter
            for dead_letter, its in zip(found, known, strict=True)
            if (not wanted or dead_letter.place in wanted)
            and topic in (None, dead_letter.topic)
            and reason in (None, dead_letter.reason)
            and state in (None, its.value)
            and (
                before is None
                or (dead_letter.failed_at is not None and dead_letter.failed_at < before)
            )
        ]
        if dry_run:
            typer.echo(f"{len(chosen)} of {len(found)} letters would be deleted")
            return
        table.delete(chosen)
        typer.echo(f"{len(chosen)} of {len(found)} letters deleted")


@app.command("show")
@uses_java
def show(
    config: Config,
    places: Places = None,
    topic: Topic = None,
    reason: Reason = None,
    worker: Worker = None,
) -> None:
    """Print dead letters, one JSON object a line; bytes that are text as text, others in base64.

    Change `key`, `value` or `headers` of what is printed, and give it to `replay --fixed`.
    """
    with errors_exit(1):
        from connectors.iceberg_tools.commands.connector_json import parse_connector

        for dead_letter in _dead_letters(
            *parse_connector(config, worker), _places(places), topic, reason
        ):
            typer.echo(json.dumps(dead_letter.to_json(), default=str))


@app.command("replay")
@uses_java
def replay(
    config: Config,
    places: Places = None,
    topic: Topic = None,
    reason: Reason = None,
    fixed: Annotated[
        Path | None,
        typer.Option(
            help="Fixed records as `show` prints them, one a line; only these are replayed.",
            exists=True,
        ),
    ] = None,
    only_missing_keys: Annotated[
        bool,
        typer.Option(
            "--only-missing-keys",
            help="Of merged tables without ordering-columns: insert rows whose key is not there, "
            "leave out the others.",
        ),
    ] = False,
    bootstrap_server: BootstrapServer = None,
    kafka_property: Properties = None,
    client_config: ClientConfig = None,
    worker: Worker = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would be replayed.")
    ] = False,
) -> None:
    """Have the connector try letters again, under their first topic, partition and offset.

    Writes them to the connector's replay topic. A letter that was replayed is passed over: doing it
    again changes nothing, unless the record failed once more meanwhile.
    """
    with errors_exit(1):
        from connectors.iceberg.config.keys import REPLAY_TOPIC
        from connectors.iceberg_tools.commands.connector_json import parse_connector
        from connectors.iceberg_tools.dead_letters.dead_letter_record import Fix, latest
        from connectors.iceberg_tools.dead_letters.replay_log import ReplayLog
        from connectors.iceberg_tools.dead_letters.replay_rules import check_merged

        parsed, host = parse_connector(config, worker)
        if parsed.replay_topic is None:
            raise ConfigError(
                REPLAY_TOPIC, "is not set: the connector must read this topic to try letters again"
            )
        check_merged(parsed, only_missing_keys=only_missing_keys)
        fixes = None
        if fixed is not None:
            fixes = [
                Fix.of(json.loads(line)) for line in fixed.read_text().splitlines() if line.strip()
            ]
        wanted = _places(places) or {fix.place for fix in fixes or ()}
        chosen = latest(_dead_letters(parsed, host, wanted, topic, reason))
        if fixes is not None:
            chosen = _fixed(chosen, fixes)
        settings = client_settings(bootstrap_server, kafka_property, client_config, host)
        log = ReplayLog(settings, parsed.replay_topic, parsed.connector)
        if dry_run:  # not opened: that would make the topic, and end a replay that is under way
            written = log.written()
            count = sum(dead_letter.next_replay() not in written for dead_letter in chosen)
            typer.echo(
                f"{count} letters would be replayed, {len(chosen) - count} were replayed before"
            )
            return
        count = log.open().write(chosen)
        typer.echo(f"{count} letters replayed, {len(chosen) - count} were replayed before")


def _with_states(
    connector: Path,
    worker: Path | None,
    servers: str | None,
    properties: list[str] | None,
    file: Path | None,
) -> tuple[DeadLetterTable, list[DeadLetterRecord], list[DeadLetterState]]:
    """The table of a connector's letters, all letters, and their states: the replay topic is read
    if Kafka is known.

    A letter's state stands at the same place as the letter.
    """
    from connectors.iceberg_tools.commands.connector_json import parse_connector
    from connectors.iceberg_tools.dead_letters.dead_letter_record import states
    from connectors.iceberg_tools.dead_letters.dead_letter_table import DeadLetterTable
    from connectors.iceberg_tools.dead_letters.replay_log import ReplayLog

    config, host = parse_connector(connector, worker)
    table = DeadLetterTable(config, host)
    heads = table.heads()
    written = set()
    if (servers is not None or host is not None) and config.replay_topic is not None:
        settings = client_settings(servers, properties, file, host)
        written = ReplayLog(settings, config.replay_topic, config.connector).written()
    return table, heads, states(heads, written)


def _age(text: str) -> timedelta:
    """An age as people write it. ConfigError: it is not written so."""
    units = {"d": "days", "h": "hours", "m": "minutes"}
    if not text[:-1].isdecimal() or text[-1] not in units:
        raise ConfigError("--older-than", f"{text} is not of the form 30d, 12h or 45m")
    return timedelta(**{units[text[-1]]: int(text[:-1])})


def _dead_letters(
    config: IcebergSinkConfig,
    host: SinkHost | None,
    wanted: set[Place],
    topic: str | None,
    reason: str | None,
) -> Iterable[DeadLetterRecord]:
    """The letters that were asked for; of all places if none is wanted. ConfigError: one of them
    has no letter."""
    from connectors.iceberg_tools.dead_letters.dead_letter_table import DeadLetterTable

    table = DeadLetterTable(config, host)
    if not wanted:
        return table.records(topic=topic, reason=reason)
    dead_letters = list(table.records(wanted))
    for missing in sorted(wanted - {dead_letter.place for dead_letter in dead_letters}):
        raise ConfigError("", f"{'/'.join(map(str, missing))} is no dead letter of this connector")
    return [x for x in dead_letters if topic in (None, x.topic) and reason in (None, x.reason)]


def _places(texts: list[str] | None) -> set[Place]:
    """Places as people write them. ConfigError: one is not written so."""
    places = set()
    for text in texts or ():
        topic, partition, offset = (["", "", *text.rsplit("/", 2)])[-3:]
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            raise ConfigError("", f"{text} is not of the form topic/partition/offset")
        places.add((topic, int(partition), int(offset)))
    return places


def _fixed(dead_letters: list[DeadLetterRecord], fixes: list[Fix]) -> list[DeadLetterRecord]:
    """The letters with what their fixes change. ConfigError: a fix belongs to no letter."""
    known = {dead_letter.place: dead_letter for dead_letter in dead_letters}
    made = []
    for fix in fixes:
        dead_letter = known.get(fix.place)
        if dead_letter is None:
            raise ConfigError(
                "", f"the fixed record {'/'.join(map(str, fix.place))} is none of the letters"
            )
        made.append(replace(dead_letter, **fix.changes))
    return made
