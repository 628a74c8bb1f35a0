"""`connect-py dlq`: look at the dead letters that an Iceberg sink keeps in a table, and have them tried again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import uses_java
from connectors.iceberg.commands.kafka_options import SERVERS, ClientConfig, Properties, client_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from connectors.iceberg.config import IcebergSinkConfig
    from connectors.iceberg.dead_letters.letter import Fix, Letter, Place

app = typer.Typer(help="Dead letters that an Iceberg sink keeps in a table.")

Config = Annotated[Path, typer.Option("--config", help="The connector as it is posted.", exists=True, dir_okay=False)]
Topic = Annotated[str | None, typer.Option(help="Only records that were read from this topic.")]
Reason = Annotated[str | None, typer.Option(help="Only records that failed for this reason, such as value_converter.")]
Places = Annotated[list[str] | None, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", show_default="all")]


@app.command("list")
@uses_java
def list_(
    config: Config,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Count the letters by topic, reason and stage."""

    def run() -> None:
        import json

        from connectors.iceberg.dead_letters.letter_table import LetterTable

        columns = ("topic", "_dlq_reason", "stage", "failed_at")
        found = LetterTable(_parsed(config)).read(*columns)
        counts = []
        if found.num_rows:
            made = found.group_by(list(columns[:3])).aggregate([([], "count_all"), ("failed_at", "max")])
            for row in made.sort_by([(name, "ascending") for name in columns[:3]]).to_pylist():
                last = row["failed_at_max"]
                counts.append({
                    "topic": row["topic"], "reason": row["_dlq_reason"], "stage": row["stage"],
                    "letters": row["count_all"], "last_failed_at": None if last is None else last.isoformat(),
                })  # fmt: skip
        if as_json:
            typer.echo(json.dumps(counts, indent=2))
            return
        for count in counts:
            typer.echo(
                f"{count['letters']:>9}  {count['topic']}  {count['reason']}  ({count['stage']}, last at "
                f"{count['last_failed_at']})"
            )
        typer.echo(f"{sum(int(str(count['letters'])) for count in counts):>9}  in all")

    _told(run)


@app.command("show")
@uses_java
def show(config: Config, places: Places = None, topic: Topic = None, reason: Reason = None) -> None:
    """Print letters, one JSON object a line; bytes that are text as text, others in base64.

    Change `key`, `value` or `headers` of what is printed, and give it to `replay --fixed`.
    """

    def run() -> None:
        import json

        for letter in _letters(_parsed(config), _places(places), topic, reason):
            typer.echo(json.dumps(letter.to_json(), default=str))

    _told(run)


@app.command("replay")
@uses_java
def replay(
    config: Config,
    bootstrap_server: Annotated[str, typer.Option(*SERVERS, help="The cluster of the connector's topics, host:port.")],
    places: Places = None,
    topic: Topic = None,
    reason: Reason = None,
    fixed: Annotated[
        Path | None,
        typer.Option(help="Fixed records as `show` prints them, one a line; only these are replayed.", exists=True),
    ] = None,
    only_missing_keys: Annotated[
        bool,
        typer.Option(
            "--only-missing-keys",
            help="Of merged tables without ordering-columns: insert rows whose key is not there, leave out the others.",
        ),
    ] = False,
    kafka_property: Properties = None,
    client_config: ClientConfig = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be replayed.")] = False,
) -> None:
    """Have the connector try letters again, under their first topic, partition and offset.

    Writes them to the connector's replay topic. A letter that was replayed is passed over: doing it again changes
    nothing, unless the record failed once more meanwhile.
    """

    def run() -> None:
        import json

        from connect_py.api.errors import ConfigError
        from connectors.iceberg.config import REPLAY_TOPIC
        from connectors.iceberg.dead_letters.letter import Fix, latest
        from connectors.iceberg.dead_letters.replay_log import ReplayLog

        parsed = _parsed(config)
        if parsed.replay_topic is None:
            raise ConfigError(REPLAY_TOPIC, "is not set: the connector must read this topic to try letters again")
        _check_merged(parsed, only_missing_keys=only_missing_keys)
        fixes = None
        if fixed is not None:
            fixes = [Fix.of(json.loads(line)) for line in fixed.read_text().splitlines() if line.strip()]
        wanted = _places(places) or {fix.place for fix in fixes or ()}
        chosen = latest(_letters(parsed, wanted, topic, reason))
        if fixes is not None:
            chosen = _fixed(chosen, fixes)
        settings = client_settings(bootstrap_server, kafka_property, client_config)
        log = ReplayLog(settings, parsed.replay_topic, parsed.connector)
        if dry_run:  # not opened: that would make the topic, and end a replay that is under way
            written = log.written()
            count = sum(letter.next_replay() not in written for letter in chosen)
            typer.echo(f"{count} letters would be replayed, {len(chosen) - count} were replayed before")
            return
        count = log.open().write(chosen)
        typer.echo(f"{count} letters replayed, {len(chosen) - count} were replayed before")

    _told(run)


def _told(run: Callable[[], None]) -> None:
    """Run; what goes wrong is one line and exit status 1."""
    from connect_py.api.errors import ConnectError

    try:
        run()
    except (ConnectError, OSError, ValueError) as error:
        typer.echo(f"connect-py: {error}", err=True)
        raise typer.Exit(1) from error


def _parsed(path: Path) -> IcebergSinkConfig:
    from connectors.iceberg.commands.connector_json import read_connector, refuse_providers
    from connectors.iceberg.config import IcebergSinkConfig

    props = read_connector(path)
    refuse_providers(props)
    return IcebergSinkConfig.parse(props)


def _check_merged(config: IcebergSinkConfig, *, only_missing_keys: bool) -> None:
    """Whether letters may be tried again, given how the tables are kept. ConfigError: they may not, or not so."""
    from connect_py.api.errors import ConfigError
    from connectors.iceberg.config import ORDERING_COLUMNS
    from connectors.iceberg.table import WriteMode

    unordered = config.mode is WriteMode.MERGE and not config.ordering_columns
    if unordered and not only_missing_keys:
        raise ConfigError(
            "", f"a letter may be older than the row of its key, and without {ORDERING_COLUMNS} nobody can tell: with "
            "--only-missing-keys rows are inserted whose key is not there"
        )  # fmt: skip
    if only_missing_keys and not unordered:
        how = "appended" if config.mode is WriteMode.APPEND else f"ordered by {ORDERING_COLUMNS}"
        raise ConfigError("", f"--only-missing-keys is for merged tables without an order; these rows are {how}")


def _letters(config: IcebergSinkConfig, wanted: set[Place], topic: str | None, reason: str | None) -> Iterable[Letter]:
    """The letters that were asked for; of all places if none is wanted. ConfigError: one of them has no letter."""
    from connect_py.api.errors import ConfigError
    from connectors.iceberg.dead_letters.letter_table import LetterTable

    table = LetterTable(config)
    if not wanted:
        return table.letters(topic=topic, reason=reason)
    letters = list(table.letters(wanted))
    for missing in sorted(wanted - {letter.place for letter in letters}):
        raise ConfigError("", f"{'/'.join(map(str, missing))} is no dead letter of this connector")
    return [x for x in letters if topic in (None, x.topic) and reason in (None, x.reason)]


def _places(texts: list[str] | None) -> set[Place]:
    """Places as people write them. ConfigError: one is not written so."""
    from connect_py.api.errors import ConfigError

    places = set()
    for text in texts or ():
        topic, partition, offset = (["", "", *text.rsplit("/", 2)])[-3:]
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            raise ConfigError("", f"{text} is not of the form topic/partition/offset")
        places.add((topic, int(partition), int(offset)))
    return places


def _fixed(letters: list[Letter], fixes: list[Fix]) -> list[Letter]:
    """The letters with what their fixes change. ConfigError: a fix belongs to no letter."""
    from dataclasses import replace

    from connect_py.api.errors import ConfigError

    known = {letter.place: letter for letter in letters}
    made = []
    for fix in fixes:
        letter = known.get(fix.place)
        if letter is None:
            raise ConfigError("", f"the fixed record {'/'.join(map(str, fix.place))} is none of the letters")
        made.append(replace(letter, **fix.changes))
    return made
