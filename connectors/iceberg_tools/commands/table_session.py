"""`TableSession`: runs a command's table operations in a worker's driver or a separate one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from connect_py.api.errors import ConfigError, ConnectError, NotFoundError

if TYPE_CHECKING:
    from rich.status import Status

    from connect_py.api.command import CommandContext, WorkerClient
    from connectors.iceberg_tools.commands.table_options import LocalTable, TableOptions
    from connectors.iceberg_tools.operations.table_operation import TableArguments, TableOperation

R = TypeVar("R")
_CATALOG_KEYS = ("iceberg.catalog", "iceberg.hadoop-conf-dir")
_CATALOG_PREFIXES = ("iceberg.catalog.", "iceberg.hadoop.")
# prefixes of the sink's own configuration keys
_OWN_PREFIXES = ("iceberg.", "errors.deadletterqueue.iceberg.")
_HAS_DRIVER = ("RUNNING", "PAUSED")


@dataclass(frozen=True, slots=True)
class _WorkerConnector:
    """A connector on a running worker whose driver uses the catalog of the table."""

    client: WorkerClient
    name: str
    worker_id: str | None  # ID of the worker that runs task 0, and therefore the driver
    use_connector: bool  # True if the command specifies this connector, not only its catalog


class TableSession:
    """Runs operations one after another.

    A separate driver is started when an operation first needs it. If a worker's driver cannot be
    used, a warning states the reason.
    """

    def __init__(
        self,
        context: CommandContext,
        options: TableOptions,
        timeout_seconds: int,
        closing: ExitStack,
        kafka: Callable[[LocalTable], Mapping[str, Any]],
        status: Status,
        separate: str | None,
    ) -> None:
        """Select a driver, without starting one. See `table_session` for the arguments."""
        self._context = context
        self._options = options
        self._timeout_seconds = timeout_seconds
        self._closing = closing
        self._kafka = kafka
        self._status = status
        self._reason = separate or ""
        self._connector: _WorkerConnector | None = None
        self._target: Any = None
        if separate is None:
            connector = _worker_connector(context, options)
            if isinstance(connector, str):
                self._reason = connector
            else:
                self._connector = connector

    def run(self, operation: TableOperation[Any, R], arguments: TableArguments) -> R:
        """Run an operation.

        Raises:
            ConnectError: The operation failed.
        """
        import msgspec

        arguments = msgspec.structs.replace(arguments, timeout_seconds=self._timeout_seconds)
        if self._connector is not None:
            try:
                return self._run_on_worker(self._connector, operation, arguments)
            except NotFoundError as error:
                # the worker runs an older version without this operation, or the connector was
                # deleted
                self._reason, self._connector = str(error), None
        if self._target is None:
            self._target = self._open()
        return operation.run(self._target, arguments)

    def pause_status(self) -> None:
        """Remove the status line before the command prompts the user."""
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
        response = client.operate(name, operation.name, encoded, self._show, connector.worker_id)
        try:
            return operation.decode(response)
        except ValueError as error:
            raise ConnectError(
                f"the worker at {client.url} returned an unexpected result for {operation.name}: "
                f"{error}"
            ) from error

    def _open(self) -> Any:
        from connectors.iceberg_tools.operations.table_operation import TableTarget

        local = self._options.local_table(self._context)
        if self._reason:
            self._context.warn(f"starting a separate Spark driver: {self._reason}")
        lake = self._closing.enter_context(local.open(self._timeout_seconds))
        return TableTarget(
            local.table,
            lake,
            local.spark.catalog,
            local.connector,
            lambda: self._kafka(local),
            self._show,
        )

    def _show(self, step: str) -> None:
        self._status.update(f"{self._options.table}: {step}" if step else self._options.table)


@contextmanager
def table_session(
    context: CommandContext,
    options: TableOptions,
    timeout_seconds: int = 120,
    kafka: Callable[[LocalTable], Mapping[str, Any]] | None = None,
    separate: str | None = None,
) -> Iterator[TableSession]:
    """Open a session for the operations of one command.

    Args:
        context: The context of the command.
        options: The table and its catalog.
        timeout_seconds: Time limit for an operation in Spark.
        kafka: Returns the settings of a Kafka client for operations in a separate driver.
        separate: The reason why the command requires a separate driver, or None.

    Raises:
        ConfigError: The options are invalid.
    """
    from rich.console import Console

    with ExitStack() as closing:
        status = closing.enter_context(Console(stderr=True).status(options.table))
        yield TableSession(
            context, options, timeout_seconds, closing, kafka or _no_kafka, status, separate
        )


def _no_kafka(_: LocalTable) -> Mapping[str, Any]:
    raise ConfigError("", "this command has no Kafka settings")


def _worker_connector(context: CommandContext, options: TableOptions) -> _WorkerConnector | str:
    """Return a connector that uses the table's catalog, or the reason there is none.

    The connector is on a running worker. The reason is empty if the command has no options that
    specify a worker.

    Raises:
        ConfigError: The options are invalid.
    """
    from connectors.iceberg_tools.commands.connector_json import is_sink, read_connector

    catalog = {
        f"iceberg.catalog.{key}": value for key, value in options.catalog_properties().items()
    }
    posted = None if options.config is None else {**read_connector(options.config), **catalog}
    if posted is None and not catalog:
        return "no catalog was specified"
    if (client := context.worker()) is None:
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
        requested = {"iceberg.catalog": options.catalog, **catalog}
        same = [
            name
            for name, each in sinks.items()
            if _catalog_of(each["info"]["config"]) == requested and _runs(each)
        ]
        if not same:
            return f"the worker at {client.url} runs no connector with this catalog"
        name = min(same)
    else:
        name = posted["name"]
        if name not in sinks:
            return f"the worker at {client.url} has no Iceberg sink {name}"
        if different := _different(posted, sinks[name]["info"]["config"]):
            return (
                f"connector {name} at {client.url} has different values for {', '.join(different)}"
            )
    return _WorkerConnector(client, name, _worker_of(sinks[name]), posted is not None)


def _catalog_of(config: Mapping[str, str]) -> dict[str, str]:
    properties = {
        key: value
        for key, value in config.items()
        if key in _CATALOG_KEYS or key.startswith(_CATALOG_PREFIXES)
    }
    return {"iceberg.catalog": "iceberg", **properties}


def _different(posted: Mapping[str, str], running: Mapping[str, str]) -> list[str]:
    """Return the sink keys whose values differ between a file and the worker's connector."""
    keys = {key for key in (*posted, *running) if key.startswith(_OWN_PREFIXES)}
    return sorted(key for key in keys if posted.get(key) != running.get(key))


def _runs(connector: Mapping[str, Any]) -> bool:
    tasks = (connector.get("status") or {}).get("tasks") or []
    return any(task["state"] in _HAS_DRIVER for task in tasks)


def _worker_of(connector: Mapping[str, Any]) -> str | None:
    """Return the ID of the worker that runs task 0 and the coordinator, or None."""
    tasks = (connector.get("status") or {}).get("tasks") or []
    return next(
        (task["worker_id"] for task in tasks if task["id"] == 0 and task["state"] in _HAS_DRIVER),
        None,
    )
