"""`connect-py routes`: the tables that a connector writes the records of its topics to."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from connect_py.api.command import CommandContext, command
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg_tools.commands.connector_json import read_connector
from connectors.iceberg_tools.commands.route_preview import RoutePreview
from connectors.iceberg_tools.commands.table_options import ConnectorFile


@command(json=True)
def routes(
    context: CommandContext,
    connector: ConnectorFile,
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
) -> None:
    """Show the tables that the rows of topics are written to, and how. Nothing is contacted or
    changed.

    Transformations are not applied: specify the topic names that result from them. Exit status 1:
    the configuration is not valid, or a row would be written to no table.
    """
    props = read_connector(connector)
    names = [
        name.strip()
        for argument in topics or [props.get("topics", "")]
        for name in argument.split(",")
        if name.strip()
    ]
    preview = RoutePreview.of(IcebergSinkConfig.parse(props), names, value or [])
    context.show(asdict(preview), preview.lines())
    raise typer.Exit(int(any(not route.tables for route in preview.routes)))
