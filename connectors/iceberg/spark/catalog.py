"""The one place that speaks to the Iceberg catalog: load, create, evolve, clean up.

All of it goes through the JVM of the Spark driver, so that the catalog is configured once, with the keys that Java
users know, and every catalog that Iceberg has works.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connectors.iceberg.faults import fault_point
from connectors.iceberg.protocol.ledger import SnapshotView, TableView
from connectors.iceberg.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.spark.errors import TableMissingError
from connectors.iceberg.spark.lake_session import LoadedTable
from connectors.iceberg.staging.ordering import ORDER
from connectors.iceberg.storage_settings import storage_settings
from connectors.iceberg.table import TableDescription, WriteMode

if TYPE_CHECKING:
    from connectors.iceberg.spark.session import SparkDriver

log = logging.getLogger(__name__)

_CLEAN_SECONDS = 60  # listing a large table and reading its manifests may take long, while commits wait
_POSITIONS = ("connect-py.ledger.", "kafka.connect.source-offsets.")  # long, and none of the tasks' business


class TableCatalog:
    """Tables by name. Names are split on every dot: `a.b.t` is table `t` in namespace `a.b`.

    Every method asks the catalog anew and raises, besides what it says itself:

        TableMissingError, TableForbiddenError: The catalog answers so.
        TableUnsuitableError: What was asked makes no sense for this table.
        CatalogUnavailableError: No answer; it may work later (`SparkDiedError`: the driver must be restarted).
    """

    def __init__(self, driver: SparkDriver, deadline_seconds: float = 120.0) -> None:
        """`deadline_seconds` limits each call; the JVM is killed when one takes longer."""
        self._driver = driver
        self._deadline_seconds = deadline_seconds

    def load(
        self,
        name: str,
        property_key: str,
        ref: str = "main",
        mode: WriteMode = WriteMode.APPEND,
        key_columns: Sequence[str] = (),
    ) -> LoadedTable:
        """Describe a table to tasks, and to the protocol.

        `mode` and `key_columns` are the connector's; without key columns, MERGE takes the table's identifier fields.
        """
        answer = self._call(name, "load", name, ref, property_key)
        return _loaded(name, ref, answer, mode, key_columns)

    def exists(self, name: str) -> bool:
        """Whether the catalog knows the table."""
        try:
            self._call(name, "uuid", name)
        except TableMissingError:
            return False
        return True

    def metadata(self, name: str) -> tuple[str, dict[str, str]]:
        """The URI of the table's current metadata, and the file IO's settings: enough to read it without a catalog."""
        answer = self._call(name, "metadata", name)
        return answer["location"], storage_settings(answer["io"])

    def create(
        self, name: str, schema: str, spec: str | None = None, properties: Mapping[str, str] | None = None
    ) -> bool:
        """Create a table, and its namespaces. Returns False when it exists already, as it is.

        Args:
            name: As routed.
            schema: Iceberg schema JSON; field ids are assigned anew, in order.
            spec: Iceberg partition spec JSON on the schema's ids; None: unpartitioned.
            properties: Table properties; `format-version` among them.
        """
        made = self._call(name, "create", name, schema, spec, json.dumps(dict(properties or {})))
        return bool(made["created"])

    def evolve(self, name: str, changes: Sequence[SchemaChange]) -> bool:
        """Make all changes in one transaction; those that the table has already are left out.

        Former names and versions of columns are noted in the table's property `connect-py.columns`.

        Returns whether the schema changed.
        """
        return bool(self._call(name, "evolve", name, json.dumps([change.to_json() for change in changes]))["changed"])

    def replace_view(self, name: str, schema: str, sql: str) -> bool:
        """Create a view, or give it a new text. Returns False when the catalog has no views.

        Args:
            name: As of a table.
            schema: Iceberg schema JSON of what it shows.
            sql: Its text in Spark's words; tables without a catalog in their names are of this one.
        """
        return bool(self._call(name, "replaceView", name, schema, sql)["made"])

    def find_commit(self, name: str, ref: str, commit_id: str) -> int | None:
        """The snapshot with this commit id among the ancestors of the ref, if it is there."""
        answer = self._call(name, "findCommit", name, ref, commit_id)
        snapshot = answer["snapshot"]
        return int(snapshot) if snapshot is not None else None

    def remove_files(self, name: str, uuid: str, prefix: str, below: int) -> int | None:
        """Delete files of earlier epochs below the table's data location, unless a snapshot references them.

        They are named `prefix`, an epoch's number that is lower than `below`, a dash, a nonce, and the digits of this
        table, as `StagedFileName` has it: a newer epoch may be at work beside us, and another table in the same folder.
        A table with another uuid is left alone, and so is one with `gc.enabled=false`. Call it only after a commit of
        the own epoch on this table: until then a sleeper's commit could still refer to the files.

        Returns how many were deleted; None: it took too long and nothing was.
        """
        arguments = {"uuid": uuid, "prefix": prefix, "below": below, "seconds": _CLEAN_SECONDS}
        answer = self._call(name, "removeFiles", name, json.dumps(arguments))
        return int(answer["removed"]) if answer["complete"] else None

    def drop_branches(self, name: str, prefix: str, below: int) -> int:
        """Drop work branches of earlier epochs: `prefix`, a number lower than `below`, a dash and one word."""
        return int(self._call(name, "dropBranches", name, prefix, str(below))["dropped"])

    def _call(self, table: str, method: str, *arguments: str | None) -> Mapping[str, Any]:
        fault_point(f"catalog_{method}")
        with self._driver.deadline(self._deadline_seconds):
            answer: Mapping[str, Any] = self._driver.call(table, "TableAccess", method, *arguments)
        return answer


def keeps_order(table: TableDescription) -> bool:
    """Whether the order of its rows is a column, so that SQL keeps it too."""
    return any(column["name"] == ORDER for column in json.loads(table.schema)["fields"])


def add_order(catalog: TableCatalog, name: str) -> None:
    """Have a column for the order of rows. Errors as of the catalog."""
    catalog.evolve(name, [SchemaChange(ChangeKind.ADD, (ORDER,), '"string"')])
    log.info("table %s: column %s keeps the order of rows", name, ORDER)


def _loaded(name: str, ref: str, answer: Mapping[str, Any], mode: WriteMode, key_columns: Sequence[str]) -> LoadedTable:
    description = TableDescription(
        name=name,
        uuid=answer["uuid"],
        format_version=answer["format_version"],
        location=answer["location"],
        data_location=answer["data_location"],
        schema_id=answer["schema_id"],
        schema=answer["schema"],
        spec=answer["spec"],
        mode=mode,
        key_columns=tuple(key_columns or answer["identifiers"]) if mode is WriteMode.MERGE else (),
        properties={key: value for key, value in answer["properties"].items() if not key.startswith(_POSITIONS)},
        io_properties=storage_settings(answer["io"]),
    )
    view = TableView(
        uuid=answer["uuid"],
        ancestors=[SnapshotView(int(snapshot), ledger) for snapshot, ledger in answer["ancestors"]],
        complete=answer["complete"],
        present=frozenset(map(int, answer["present"])),
        property=answer["property"],
        replaced=answer["replaced"],
        branch_missing=answer["branch_missing"],
    )
    head = answer["head"]
    return LoadedTable(description, view, ref, int(head) if head is not None else None, answer["empty"])
