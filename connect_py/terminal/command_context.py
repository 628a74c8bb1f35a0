"""`LocalContext`: services that `connect-py` provides to one run of a command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from connect_py.api.command import CommandTraits, PrerequisiteError
from connect_py.api.errors import ConfigError, ConnectError
from connect_py.secret_mask import masked
from connect_py.terminal.exit_status import print_error
from connect_py.terminal.rest_client import RestClient

if TYPE_CHECKING:
    from connect_py.api.pipeline import PipelineFactory
    from connect_py.api.service import SharedServices
    from connect_py.api.sink_host import SinkHost
    from connect_py.terminal.worker_options import WorkerOptions


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """Functions that run parts of a worker inside a command. Each one imports what it runs."""

    services: Callable[[], AbstractContextManager[SharedServices]]
    sink_host: Callable[
        [Mapping[str, str], Path | None, Mapping[str, str]], AbstractContextManager[SinkHost]
    ]
    pipelines: Callable[[Mapping[str, str], Path | None], PipelineFactory]
    resolve: Callable[[Mapping[str, str], Path], dict[str, str]]
    # exports the locations of Java and the requested jars to the environment
    export_java: Callable[[Iterable[str]], None]


class LocalContext:
    """Implements `connect_py.api.command.CommandContext`."""

    def __init__(
        self,
        traits: CommandTraits,
        parts: WorkerParts,
        closing: ExitStack,
        *,
        as_json: bool = False,
        worker: WorkerOptions | None = None,
    ) -> None:
        """Create the context without starting any service.

        Args:
            traits: Traits of the command.
            parts: Functions that start parts of a worker.
            closing: Stack that stops everything that was started. The caller closes it.
            as_json: True if the command line contains `--json`.
            worker: Options that specify a worker, or None if the command does not have them.
        """
        self._traits = traits
        self._parts = parts
        self._closing = closing
        self._as_json = as_json
        self._worker_options = worker
        self._client: RestClient | None = None
        self._services: SharedServices | None = None
        self._java_exported = False

    # --- Input and output

    @property
    def as_json(self) -> bool:
        return self._as_json

    def show(self, document: Any, lines: Iterable[str]) -> None:
        if self._as_json:
            typer.echo(json.dumps(document, indent=2))
            return
        for line in lines:
            typer.echo(line)

    def warn(self, message: str) -> None:
        print_error(message)

    def confirm(self, question: str) -> bool:
        if sys.stdin is None or sys.stdin.closed:
            raise ConfigError("", f"{question} Standard input is closed: use --yes to confirm")
        return typer.confirm(question, err=True)

    def mask(self, message: str) -> str:
        return masked(message)

    # --- Running worker

    def worker(self) -> RestClient | None:
        return None if self._worker_options is None else self.rest_client()

    def rest_client(self) -> RestClient:
        """Return the client for a command that was declared with `worker=True`."""
        if self._client is None:
            if self._worker_options is None:
                raise TypeError("the command was not declared with worker=True")
            address = self._worker_options.address()
            self._client = self._closing.enter_context(RestClient(address))
        return self._client

    # --- Parts of a worker in this process

    def services(self) -> SharedServices:
        if self._services is None:
            self._export_java()
            self._services = self._closing.enter_context(self._parts.services())
        return self._services

    def resolve(self, connector: Mapping[str, str], worker: Path) -> dict[str, str]:
        return self._parts.resolve(connector, worker)

    def pipelines(
        self, connector: Mapping[str, str], worker: Path | None = None
    ) -> PipelineFactory:
        return self._parts.pipelines(connector, worker)

    def sink_host(
        self, connector: Mapping[str, str], worker: Path | None, settings: Mapping[str, str]
    ) -> SinkHost:
        self._export_java()
        return self._closing.enter_context(self._parts.sink_host(connector, worker, settings))

    def _export_java(self) -> None:
        if self._java_exported:
            return
        try:
            self._parts.export_java(self._traits.jars)
        except (ConnectError, OSError) as error:
            raise PrerequisiteError(str(error)) from error
        self._java_exported = True
