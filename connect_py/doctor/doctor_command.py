"""`connect-py doctor`: looks for what a worker and a connector need, and says how to mend what is
missing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from connect_py.api.check import Finding


def doctor(
    worker: Annotated[
        Path | None,
        typer.Argument(
            metavar="WORKER.PROPERTIES", exists=True, dir_okay=False, show_default="none"
        ),
    ] = None,
    connector: Annotated[
        Path | None,
        typer.Argument(metavar="CONNECTOR.JSON", exists=True, dir_okay=False, show_default="none"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Check Java, jars, ports, plugins, Kafka, topics, rights, the catalog and the storage before a
    worker starts.

    Without files: the machine. With the worker's properties: also its ports, plugins, brokers,
    internal topics and rights. With a connector: also its configuration, topics, catalog and
    storage; a probe file is written and removed. Nothing else is changed, and nothing is fetched.
    Exit status 0: no check failed; 1: one failed.
    """
    from connect_py.api.check import Verdict
    from connect_py.secret_mask import masked

    found = []
    for each in _findings(worker, connector):
        finding = replace(each, text=masked(each.text))
        found.append(finding)
        if not as_json:
            _print(finding)
    failed = sum(finding.verdict is Verdict.FAIL for finding in found)
    if as_json:
        rows = [
            {
                "subject": each.subject,
                "verdict": each.verdict.value,
                "text": each.text,
                "mend": each.mend or None,
            }
            for each in found
        ]
        typer.echo(json.dumps({"failed": failed, "findings": rows}, indent=2))
    raise typer.Exit(int(failed > 0))


def _findings(worker: Path | None, connector: Path | None) -> Iterator[Finding]:
    from connect_py.api.check import Verdict
    from connect_py.api.command import provide_services
    from connect_py.doctor.check_runner import run_checks
    from connect_py.doctor.connector_checks import connector_check, plugin_checks
    from connect_py.doctor.files import Files
    from connect_py.doctor.kafka_checks import KafkaChecks
    from connect_py.doctor.machine_checks import machine_checks
    from connect_py.doctor.worker_checks import worker_checks
    from connect_py.plugins.plugin_registry import PluginRegistry
    from connect_py.worker.local_services import LocalServices

    files = Files.read(worker, connector)
    props, config = files.connector, files.config
    with LocalServices("connect-py doctor", files.worker) as services:
        provide_services(lambda: services)
        machine = list(
            run_checks(machine_checks(java_needed=plugin_checks(props, with_java=False)[1]))
        )
        yield from machine
        yield from files.wrong
        folders = (config["plugin.path"] or ()) if config is not None else ()
        plugins = PluginRegistry.discover(
            folder for folder in folders if Path(folder.strip()).is_dir()
        )
        if config is not None and worker is not None:
            topics = [
                topic.strip() for topic in props.get("topics", "").split(",") if topic.strip()
            ]
            yield from run_checks(
                chain(worker_checks(worker, config, plugins), KafkaChecks(config).checks(topics))
            )
        if props:
            with_java = all(finding.verdict is Verdict.OK for finding in machine)
            if with_java:
                from connect_py.embedded.spark_environment import spark_environment

                os.environ.update(spark_environment())
            yield from run_checks([connector_check(props, plugins, services)])
            yield from run_checks(plugin_checks(props, with_java=with_java)[0])
    provide_services(None)  # they ended


def _print(finding: Finding) -> None:
    from rich.table import Table
    from rich.text import Text

    from connect_py.terminal.tables import STYLES, console

    verdict = finding.verdict.value
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=4)
    line.add_column(overflow="fold")
    line.add_row(Text(verdict, STYLES[verdict]), Text(f"{finding.subject}: {finding.text}"))
    if finding.mend:
        line.add_row("", Text(f"-> {finding.mend}", "bold"))
    console().print(line)
