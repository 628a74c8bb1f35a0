"""`connect-py routes`: shows the tables that a connector's topics are routed to."""

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
            help="Comma-separated topics; may be repeated.",
            show_default="the connector's `topics`",
        ),
    ] = None,
    value: Annotated[
        list[str] | None,
        typer.Option("--value", help="A value of the route field; may be repeated."),
    ] = None,
) -> None:
    """Show the tables that topics are routed to, and their settings.

    No server is contacted, and nothing is changed. Transformations are not applied. Specify the
    topic names that result from them. Exit status 1: the configuration is invalid, or a row would
    not be written to any table.
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
