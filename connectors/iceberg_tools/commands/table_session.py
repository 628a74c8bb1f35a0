"""`TableSession`: runs table operations for a command, in the driver of a running worker or in a
separate one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from connect_py.api.command import worker_client
from connect_py.api.errors import ConfigError, ConnectError, NotFoundError

if TYPE_CHECKING:
    from rich.status import Status

    from connect_py.api.command import WorkerClient
    from connectors.iceberg_tools.commands.table_options import TablePlace
    from connectors.iceberg_tools.operations.table_operation import TableArguments, TableOperation

R = TypeVar("R")
_CATALOG_KEYS = ("iceberg.catalog", "iceberg.hadoop-conf-dir")
_CATALOG_PREFIXES = ("iceberg.catalog.", "iceberg.hadoop.")
# what a sink's configuration consists of
_OWN_PREFIXES = ("iceberg.", "errors.deadletterqueue.iceberg.")
_HAS_DRIVER = ("RUNNING", "PAUSED")


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options that say where a table is."""

    table: str
    config: Path | None
    worker: Path | None  # properties
    catalog_properties: list[str] | None
    catalog: str
    timeout_seconds: int = 120

    def place(self) -> TablePlace:
        """Return the catalog for a separate driver. Errors: see `table_place`."""
        from connectors.iceberg_tools.commands.table_options import table_place

        return table_place(
            self.table, self.config, self.worker, self.catalog_properties, self.catalog
        )


@dataclass(frozen=True, slots=True)
class _WorkerConnector:
    """A connector of a running worker whose driver knows the table's catalog."""

    client: WorkerClient
    name: str
    worker_id: str | None  # of the worker that runs task 0, which has the driver
    use_connector: bool  # whether the command names this connector; else it names the catalog only


class TableSession:
    """Runs operations one after the other. A separate driver is started when it is first needed,
    and announced."""

    def __init__(
        self,
        options: TableOptions,
        closing: ExitStack,
        kafka: Callable[[TablePlace], Mapping[str, Any]],
        status: Status,
        separate: str | None,
    ) -> None:
        """Contact nothing yet. Arguments: see `table_session`."""
        self._options = options
        self._closing = closing
        self._kafka = kafka
        self._status = status
        self._reason = separate or ""
        self._connector: _WorkerConnector | None = None
        self._target: Any = None
        if separate is None:
            found = _worker_connector(options)
            if isinstance(found, str):
                self._reason = found
            else:
                self._connector = found

    def run(self, operation: TableOperation[Any, R], arguments: TableArguments) -> R:
        """Run an operation.

        Raises:
            ConnectError: It failed.
        """
        import msgspec

        arguments = msgspec.structs.replace(
            arguments, timeout_seconds=self._options.timeout_seconds
        )
        if self._connector is not None:
            try:
                return self._run_on_worker(self._connector, operation, arguments)
            except (
                NotFoundError
            ) as error:  # a worker of an earlier version, or the connector was deleted
                self._reason, self._connector = str(error), None
        if self._target is None:
            self._target = self._open()
        return operation.run(self._target, arguments)

    def pause_status(self) -> None:
        """Remove the status line, so that the command can ask a question."""
        self._status.stop()

    def _run_on_worker(
        self,
        connector: _WorkerConnector,
        operation: TableOperation[Any, R],
        arguments: TableArguments,
    ) -> R:
        import msgspec

        encoded = operation.encode(
            msgspec.structs.replace(arguments, use_connector=connector.use_connector)
        )
        client, name = connector.client, connector.name
        answer = client.operate(name, operation.name, encoded, self._show, connector.worker_id)
        try:
            return operation.decode(answer)
        except ValueError as error:
            raise ConnectError(
                f"the worker at {client.url} returned an unexpected result of {operation.name}: "
                f"{error}"
            ) from error

    def _open(self) -> Any:
        from connectors.iceberg_tools.operations.table_operation import TableTarget

        place = self._options.place()
        if self._reason:
            typer.echo(f"connect-py: starting a separate Spark driver: {self._reason}", err=True)
        lake = self._closing.enter_context(place.open(self._options.timeout_seconds))
        return TableTarget(
            place.table,
            lake,
            place.spark.catalog,
            place.connector,
            lambda: self._kafka(place),
            self._show,
        )

    def _show(self, step: str) -> None:
        self._status.update(f"{self._options.table}: {step}" if step else self._options.table)


@contextmanager
def table_session(
    options: TableOptions,
    kafka: Callable[[TablePlace], Mapping[str, Any]] | None = None,
    separate: str | None = None,
) -> Iterator[TableSession]:
    """Open a session for the operations of one command.

    Args:
        options: Where the table is.
        kafka: Returns the settings of a Kafka client for operations in a separate driver.
        separate: Why the command needs a separate driver; None: it does not.

    Raises:
        ConfigError: The options are not valid.
    """
    from rich.console import Console

    with ExitStack() as closing:
        status = closing.enter_context(Console(stderr=True).status(options.table))
        yield TableSession(options, closing, kafka or _no_kafka, status, separate)


def _no_kafka(_: TablePlace) -> Mapping[str, Any]:
    raise ConfigError("", "this command has no settings of Kafka")


def _worker_connector(options: TableOptions) -> _WorkerConnector | str:
    """Return the connector of a running worker that knows the table's catalog, or the reason why
    there is none.

    The reason is empty for a caller other than `connect-py`, which offers no options to name a
    worker.

    Raises:
        ConfigError: The options are not valid.
    """
    from connectors.iceberg_tools.commands.connector_json import is_sink, read_connector
    from connectors.iceberg_tools.commands.key_values import key_values

    catalog = {
        f"iceberg.catalog.{key}": value
        for key, value in key_values("--catalog-property", options.catalog_properties).items()
    }
    posted = None if options.config is None else {**read_connector(options.config), **catalog}
    if posted is None and not catalog:
        return "no catalog was named"
    if (client := worker_client()) is None:
        return ""
    try:
        connectors = client.connectors()
    except ConfigError:
        raise
    except ConnectError as error:
        return str(error)
    sinks = {
        name: each
        for name, each in connectors.items()
        if is_sink(each.get("info", {}).get("config", {}))
    }
    if posted is None:
        wanted = {"iceberg.catalog": options.catalog, **catalog}
        same = [
            name
            for name, each in sinks.items()
            if _catalog_of(each["info"]["config"]) == wanted and _runs(each)
        ]
        if not same:
            return f"the worker at {client.url} runs no connector with this catalog"
        name = min(same)
    else:
        name = posted["name"]
        if name not in sinks:
            return f"the worker at {client.url} has no Iceberg sink {name}"
        if different := _different(posted, sinks[name]["info"]["config"]):
            return f"connector {name} at {client.url} has another {', '.join(different)}"
    return _WorkerConnector(client, name, _worker_of(sinks[name]), posted is not None)


def _catalog_of(config: Mapping[str, str]) -> dict[str, str]:
    found = {
        key: value
        for key, value in config.items()
        if key in _CATALOG_KEYS or key.startswith(_CATALOG_PREFIXES)
    }
    return {"iceberg.catalog": "iceberg", **found}


def _different(posted: Mapping[str, str], running: Mapping[str, str]) -> list[str]:
    """Return the keys of the sink whose values differ between a file and the worker's connector."""
    keys = {key for key in (*posted, *running) if key.startswith(_OWN_PREFIXES)}
    return sorted(key for key in keys if posted.get(key) != running.get(key))


def _runs(connector: Mapping[str, Any]) -> bool:
    tasks = (connector.get("status") or {}).get("tasks") or []
    return any(task["state"] in _HAS_DRIVER for task in tasks)


def _worker_of(connector: Mapping[str, Any]) -> str | None:
    """Return the worker of task 0, which runs the coordinator; None if no worker runs it."""
    tasks = (connector.get("status") or {}).get("tasks") or []
    return next(
        (task["worker_id"] for task in tasks if task["id"] == 0 and task["state"] in _HAS_DRIVER),
        None,
    )
