"""`connect-py routes`: which tables the records of a connector would go to."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from connectors.iceberg_tools.commands.exit_status import errors_exit


def routes(
    connector: Annotated[
        Path, typer.Argument(help="The connector as it is posted.", exists=True, dir_okay=False)
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topics",
            help="Topics, comma separated; may be repeated.",
            show_default="the connector's `topics`",
        ),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option("--value", help="A value of the route field; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show which tables the rows of topics would go to, and how these are written. Nothing is asked
    or changed.

    Transformations are not run: give topics as they are after them. Exit status 1: the
    configuration is not acceptable, or a row would go nowhere.
    """
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg_tools.commands.connector_json import read_connector
    from connectors.iceberg_tools.commands.route_preview import RoutePreview

    with errors_exit(1):
        props = read_connector(connector)
        asked = [
            t.strip()
            for text in topics or [props.get("topics", "")]
            for t in text.split(",")
            if t.strip()
        ]
        preview = RoutePreview.of(IcebergSinkConfig.parse(props), asked, value or [])
    if as_json:
        typer.echo(json.dumps(asdict(preview), indent=2))
    else:
        for line in preview.lines():
            typer.echo(line)
    raise typer.Exit(int(any(not route.tables for route in preview.routes)))
