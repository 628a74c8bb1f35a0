"""Rows that an expectation left out are kept in a separate table, exactly once.

Before the swap they are written to a file that no table has. The swap of the commit names it in a
property of the table. After the swap the rows are appended to the table of rejected rows, by a
commit of its own with a ledger that names the commit they come from, which is checked on the
metadata that its swap compares with (rule 16). A crash in between leaves the property: the next
commit on the table looks for that ledger first, and appends the rows if it is older.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.errors import ConnectError
from connectors.iceberg.catalog.java_errors import translating
from connectors.iceberg.catalog.sql_names import literal, quoted
from connectors.iceberg.catalog.staged_rows import content_file, staged_again
from connectors.iceberg.commit.cycle_rows import CycleRows
from connectors.iceberg.commit.output_columns import iceberg_fields, in_columns_of
from connectors.iceberg.commit.rules.expectations import NAMES, ExpectationCheck
from connectors.iceberg.commit.rules.rule import CommitRule, RuleRun
from connectors.iceberg.config.maintenance_policy import CREATED_PROPERTIES
from connectors.iceberg.conversion.output_columns import judge
from connectors.iceberg.errors import CatalogUnavailableError
from connectors.iceberg.protocol.commit_request import (
    MAIN,
    SNAPSHOT_ID,
    CommitRequest,
    CommitStatus,
)
from connectors.iceberg.protocol.faults import fault_point
from connectors.iceberg.protocol.ledger import Ledger, LedgerProperty, group_of, look_up
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.staged_file_name import table_digits
from connectors.iceberg.table.schema_change import ChangeAction, ChangeKind
from connectors.iceberg.table.table import StagedFile, StagedKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from connectors.iceberg.catalog.java_catalog import JavaCatalog
    from connectors.iceberg.catalog.java_table import JavaTable
    from connectors.iceberg.catalog.table_update import TableUpdate
    from connectors.iceberg.commit.attempt import Attempt
    from connectors.iceberg.commit.cycle_table import CycleTable
    from connectors.iceberg.commit.rules.rule import Commit
    from connectors.iceberg.protocol.table_metadata import TableMetadata

log = logging.getLogger(__name__)

# and the connect group id: property that names the file; empty: none
REJECTED: Final = "connect-py.rejected."
LEDGER: Final = "connect-py.rejected.ledger."  # and the same: of the table of rejected rows
# in the summary of a snapshot of rejected rows: `<group> <commit id>`
_COMMIT_KEY: Final = "connect-py.rejected-by"
_COMMIT, _AT = "_commit", "_rejected_at"
_FIELD: Final = {"id": 2_000_000_020, "name": NAMES, "required": False, "type": "string"}
_LOOKED_AT: Final = 100  # newest snapshots of the table of rejected rows


def rejected_key(property_key: str) -> str:
    """The property of the connector whose ledger has this key."""
    return REJECTED + group_of(property_key)


def write_rejected(cycle: CycleTable, rows: DataFrame) -> dict[str, str]:
    """Write rows with `NAMES` to a file; returns the property to set with the commit."""
    request = cycle.request
    file = cycle.write_unbound(rows, [_FIELD])
    found = StagedFile(
        StagedKind.CHANGES,
        str(file.location()),
        int(file.recordCount()),
        int(file.fileSizeInBytes()),
        0,
        0,
    )
    ledger = Ledger.from_json(request.summary[request.property_key])
    text = json.dumps(
        {
            "commit": request.commit_id,
            "path": found.path,
            "rows": found.rows,
            "size": found.size,
            "epoch": [ledger.epoch.number, ledger.epoch.nonce],
            "cycle": ledger.cycle,
        }
    )
    return {rejected_key(request.property_key): text}


class RejectedRows(CommitRule):
    """Appends the rows that commits left out to the table of rejected rows."""

    def __init__(
        self,
        spark: SparkSession,
        catalog: JavaCatalog,
        commit: Commit,
    ) -> None:
        """`commit`: of the engine."""
        self._spark = spark
        self._catalog = catalog
        self._commit = commit
        self._settled: set[str] = set()  # texts of the property that are known to be done with

    def begin(self, request: CommitRequest) -> RuleRun | None:
        """Return the hooks if rows may be rejected, or if the property of an earlier commit may
        have to be cleared."""
        return _RejectedRowsRun(request, self) if request.expectations or self._settled else None

    def settle(self, table: JavaTable, property_key: str, request: CommitRequest | None) -> None:
        """Append the rows that an earlier commit announced."""
        if request is not None:
            self.append_announced(table, request, table.metadata().properties)

    def append_announced(
        self, table: JavaTable, request: CommitRequest, properties: Mapping[str, str]
    ) -> None:
        """Append the rows that properties of the table name, unless that was done.

        Raises:
            ConnectError: The rows remain in their file, and the next commit tries again.
        """
        text = properties.get(rejected_key(request.property_key), "")
        if not text or text in self._settled:
            return
        with translating(request.rejected_table):
            self._append(table, request, json.loads(text))
        self._settled.add(text)

    def is_settled(self, text: str | None) -> bool:
        """Return True if the rows that a property names are in their table."""
        return text in self._settled

    def _append(self, table: JavaTable, request: CommitRequest, named: Mapping[str, Any]) -> None:
        name, group = request.rejected_table, group_of(request.property_key)
        by, key = f"{group} {named['commit']}", LEDGER + group
        # an earlier release wrote none
        epoch = Epoch(*named["epoch"]) if "epoch" in named else Epoch(0, "")
        there = self._catalog.find(name)
        if there is not None and _has(there.metadata(), by, key, (epoch, named.get("cycle", 0))):
            return
        if (file := table.changes_at(named["path"])) is None:
            log.warning(
                "table %s: the file of rejected rows %s is gone: they count as appended",
                name,
                named["path"],
            )
            return
        with table.staged([content_file(file)], [_FIELD]) as staged:
            columns = [*table.metadata().column_names(), NAMES]
            rows = self._spark.table(staged).selectExpr(
                *map(quoted, columns),
                f"{literal(named['commit'])} AS {_COMMIT}",
                f"current_timestamp() AS {_AT}",
            )
            there = self._fitting(name, there, rows)
            metadata = there.metadata()
            prefix = request.file_prefix.replace(
                table_digits(table.metadata().uuid), table_digits(metadata.uuid)
            )
            written = there.write(
                in_columns_of(rows, metadata.column_names()), f"{prefix}{named['commit']}-made"
            )
        version = look_up(metadata.view(MAIN, key)).version
        ledger = Ledger(epoch, named["commit"], named.get("cycle", 0), metadata.uuid, "", {})
        text = LedgerProperty.template(ledger, {}, SNAPSHOT_ID)
        append = CommitRequest(
            name,
            ledger.commit,
            version,
            key,
            text,
            {key: ledger.to_json(), _COMMIT_KEY: by},
            [staged_again(there.content_file(each), metadata) for each in written],
            work_branch=request.work_branch,
            file_prefix=prefix,
        )
        fault_point("before_rejected_commit")
        outcome = self._commit(append)
        fault_point("after_rejected_commit")
        if outcome.status is not CommitStatus.COMMITTED:  # a rival may have appended them
            raise CatalogUnavailableError(f"{name}: rejected rows wait: {outcome.reason}")
        log.info(
            "table %s: %d rows were rejected and are in %s", request.table, named["rows"], name
        )
        table.delete_file(named["path"])

    def _fitting(self, name: str, there: JavaTable | None, rows: DataFrame) -> JavaTable:
        """The table with the columns of these rows; it is created if it is missing."""
        fields = iceberg_fields(self._catalog.java, rows)
        if there is None:
            schema = {"type": "struct", "schema-id": 0, "fields": fields}
            version = 3 if any("variant" in json.dumps(each["type"]) for each in fields) else 2
            properties = {**CREATED_PROPERTIES, "format-version": str(version)}
            self._catalog.create(name, json.dumps(schema), None, properties)
            there = self._catalog.load(name)
        apply = dict.fromkeys((ChangeKind.ADD, ChangeKind.WIDEN), ChangeAction.APPLY)
        if changes := judge(there.metadata().schema["fields"], fields, apply, begins=True).apply:
            there.evolve(changes)
            there.refresh()
        return there


class _RejectedRowsRun(RuleRun):
    def __init__(self, request: CommitRequest, rejected_rows: RejectedRows) -> None:
        self._request = request
        self._rejected_rows = rejected_rows

    def rows(self, cycle: CycleTable, rows: CycleRows) -> CycleRows:
        """Write rejected rows to a file, which the commit names in a property."""
        check = cycle.findings.get(ExpectationCheck)
        if check is None or check.rejected is None:
            return rows
        return dataclasses.replace(
            rows, properties={**rows.properties, **write_rejected(cycle, check.rejected)}
        )

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Clear the property of an earlier commit whose rows are in their table."""
        key = rejected_key(self._request.property_key)
        if self._rejected_rows.is_settled(update.base().properties.get(key)):
            update.set_properties({key: ""})

    def committed(self, attempt: Attempt, table: JavaTable) -> None:
        """Append the rejected rows now; if that fails, the next commit does it."""
        try:
            self._rejected_rows.append_announced(table, self._request, attempt.rows.properties)
        except ConnectError as error:
            log.warning(
                "table %s: rejected rows wait for the next commit: %s", self._request.table, error
            )


def _has(metadata: TableMetadata, by: str, key: str, stamp: tuple[Epoch, int]) -> bool:
    """Whether the rows of this commit are in the table, or those of a later one."""
    ledger = look_up(metadata.view(MAIN, key)).ledger
    if ledger is not None and (ledger.epoch, ledger.cycle) >= stamp:
        return True
    # an earlier release wrote no ledger
    newest = itertools.islice(metadata.ancestors(metadata.head(MAIN)), _LOOKED_AT)
    return any(snapshot["summary"].get(_COMMIT_KEY) == by for snapshot in newest)
