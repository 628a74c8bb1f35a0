"""`connect-py doctor`: checks the requirements of a worker and a connector."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from connect_py.api.check import Finding, Verdict
from connect_py.api.command import CommandContext, command
from connect_py.doctor.check_runner import run_checks
from connect_py.doctor.connector_checks import connector_check, plugin_checks
from connect_py.doctor.files import Files
from connect_py.doctor.kafka_checks import KafkaChecks
from connect_py.doctor.machine_checks import machine_checks
from connect_py.doctor.worker_checks import worker_checks
from connect_py.embedded.spark_environment import spark_environment
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.terminal.tables import STYLES, console
from connect_py.worker.local_services import LocalServices


@command(json=True)
def doctor(
    context: CommandContext,
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
) -> None:
    """Check this machine, Kafka, the catalog, and the storage before a worker starts.

    The checks cover Java, jars, ports, plugins, topics, and permissions. Without files, only the
    machine is checked. Worker properties add checks for the worker's ports, plugins, brokers,
    internal topics, and permissions. A connector adds checks for the connector's configuration,
    topics, catalog, and storage. The storage check writes and removes a probe file. Nothing else is
    changed, and nothing is downloaded. The exit status is 1 if a check failed, otherwise 0.
    """
    findings = []
    for each in _findings(worker, connector):
        finding = replace(each, text=context.mask(each.text))
        findings.append(finding)
        if not context.as_json:  # print immediately, because some checks take a minute
            _print(finding)
    failed = sum(finding.verdict is Verdict.FAIL for finding in findings)
    rows = [
        {
            "subject": each.subject,
            "verdict": each.verdict.value,
            "text": each.text,
            "remedy": each.remedy or None,
        }
        for each in findings
    ]
    context.show({"failed": failed, "findings": rows}, ())
    raise typer.Exit(int(failed > 0))


def _findings(worker: Path | None, connector: Path | None) -> Iterator[Finding]:
    files = Files.read(worker, connector)
    props, config = files.connector, files.config
    with LocalServices("connect-py doctor", files.worker) as services:
        own_checks = plugin_checks(props, services)
        needs_java = any(check.needs_java for check in own_checks)
        machine = list(run_checks(machine_checks(java_needed=needs_java)))
        yield from machine
        yield from files.errors
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
            has_java = all(finding.verdict is Verdict.OK for finding in machine)
            if has_java:
                os.environ.update(spark_environment())
            yield from run_checks([connector_check(props, plugins, services)])
            yield from run_checks(check for check in own_checks if has_java or not check.needs_java)


def _print(finding: Finding) -> None:
    verdict = finding.verdict.value
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=4)
    line.add_column(overflow="fold")
    line.add_row(Text(verdict, STYLES[verdict]), Text(f"{finding.subject}: {finding.text}"))
    if finding.remedy:
        line.add_row("", Text(f"-> {finding.remedy}", "bold"))
    console().print(line)
