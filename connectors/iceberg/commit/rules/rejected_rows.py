"""`RejectedRows`: appends rejected rows to a separate table, exactly once.

A row is rejected if it violates an expectation with the action `dead-letter`. Before the swap, the
rejected rows are written to a file that no table references. The swap that commits the accepted
rows also sets a table property with the path of the file. After the swap, a separate commit appends
the rejected rows to their own table. The ledger of that commit contains the ID of the original
commit, and is checked against the metadata that the swap replaces (rule 16 of the commit protocol).
If the process crashes between the two commits, the property remains. The next commit to the source
table then reads the ledger of the table of rejected rows, and appends the rows if that ledger is
older.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from connect_py.api.errors import ConnectError
from connect_py.plurals import pluralize
from connectors.iceberg.catalog.java_catalog import JavaCatalog, JavaTable
from connectors.iceberg.catalog.java_errors import translating
from connectors.iceberg.catalog.sql_names import literal, quoted
from connectors.iceberg.catalog.table_update import TableUpdate
from connectors.iceberg.commit.attempt import Attempt
from connectors.iceberg.commit.rules.expectations import NAMES, ExpectationCheck
from connectors.iceberg.commit.rules.rule import Commit, CommitRule
from connectors.iceberg.commit.user_sql import create_for, iceberg_fields, in_columns_of
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
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.staging.staged_file_name import table_digits
from connectors.iceberg.table.schema_change import ChangeAction, ChangeKind

log = logging.getLogger(__name__)

# The connect group ID follows each of these prefixes.
# property of the source table that describes the file; empty if there is none
REJECTED: Final = "connect-py.rejected."
LEDGER: Final = "connect-py.rejected.ledger."  # property of the table of rejected rows
# summary entry in snapshots of the table of rejected rows: `<group> <commit id>`
_COMMIT_KEY: Final = "connect-py.rejected-by"
_COMMIT, _AT = "_commit", "_rejected_at"
_FIELD: Final = {"id": 2_000_000_020, "name": NAMES, "required": False, "type": "string"}
_SEARCHED_SNAPSHOTS: Final = 100  # number of newest snapshots to search for `_COMMIT_KEY`


def rejected_key(property_key: str) -> str:
    """Return the name of the table property for a connector's rejected rows."""
    return REJECTED + group_of(property_key)


class RejectedRows(CommitRule):
    """Appends rows that expectations rejected to the table of rejected rows."""

    def __init__(self, catalog: JavaCatalog, commit: Commit) -> None:
        """Create the rule. `commit` is `CommitEngine.commit`."""
        self._catalog = catalog
        self._commit = commit
        self.settled: set[str] = set()  # property values whose announced rows have been appended

    def change_rows(self, attempt: Attempt) -> None:
        """Write rejected rows to a file, and announce the file in a table property."""
        check = attempt.findings.get(ExpectationCheck)
        if check is None or check.rejected is None:
            return
        request, file = attempt.request, attempt.write_unbound(check.rejected, [_FIELD])
        ledger = Ledger.from_json(request.summary[request.property_key])
        attempt.properties[rejected_key(request.property_key)] = json.dumps(
            {
                "commit": request.commit_id,
                "path": str(file.location()),
                "rows": int(file.recordCount()),
                "size": int(file.fileSizeInBytes()),
                "epoch": [ledger.epoch.number, ledger.epoch.nonce],
                "cycle": ledger.cycle,
            }
        )

    def amend(self, attempt: Attempt, update: TableUpdate) -> None:
        """Clear the property if the rows that it announces have been appended."""
        key = rejected_key(attempt.request.property_key)
        if update.base().properties.get(key) in self.settled:
            update.set_properties({key: ""})

    def committed(self, attempt: Attempt, table: JavaTable) -> None:
        """Append the rejected rows. If this fails, the next commit appends them."""
        request = attempt.request
        announced = attempt.properties.get(rejected_key(request.property_key), "")
        try:
            self.append_announced(table, request, announced)
        except ConnectError as error:
            log.warning(
                "table %s: rejected rows wait for the next commit: %s", request.table, error
            )

    def append_announced(self, table: JavaTable, request: CommitRequest, announced: str) -> None:
        """Append the rows that a table's property announces, unless this has been done.

        Raises:
            ConnectError: The rows remain in their file, and the next commit tries again.
        """
        if announced and announced not in self.settled:
            with translating(request.rejected_table):
                self._append(table, request, json.loads(announced))
            self.settled.add(announced)

    def _append(
        self, table: JavaTable, request: CommitRequest, announced: Mapping[str, Any]
    ) -> None:
        name, group, commit_id = (
            request.rejected_table,
            group_of(request.property_key),
            announced["commit"],
        )
        by, key = f"{group} {commit_id}", LEDGER + group
        # earlier releases did not write the epoch
        epoch, cycle = Epoch(*announced.get("epoch", (0, ""))), announced.get("cycle", 0)
        target = self._catalog.find(name)
        if target is not None and _has(target.metadata(), by, key, (epoch, cycle)):
            return
        if (file := table.changes_at(announced["path"])) is None:
            log.warning(
                "table %s: file %s with rejected rows is missing, treating its rows as appended",
                name,
                announced["path"],
            )
            return
        with table.staged([file], [_FIELD]) as relation:
            rows = self._catalog.spark.table(relation).selectExpr(
                *map(quoted, [*table.metadata().column_names(), NAMES]),
                f"{literal(commit_id)} AS {_COMMIT}",
                f"current_timestamp() AS {_AT}",
            )
            fields = iceberg_fields(self._catalog, rows)
            if target is None:
                has_variant = any("variant" in json.dumps(each["type"]) for each in fields)
                target = create_for(
                    self._catalog, name, fields, {"format-version": "3" if has_variant else "2"}
                )
            policy = dict.fromkeys((ChangeKind.ADD, ChangeKind.WIDEN), ChangeAction.APPLY)
            metadata = target.metadata()
            if changes := judge(metadata.schema["fields"], fields, policy, begins=True).apply:
                target.evolve(changes)
                metadata = target.refresh()
            prefix = request.file_prefix.replace(
                table_digits(table.metadata().uuid), table_digits(metadata.uuid)
            )
            written = target.write(in_columns_of(rows, target), f"{prefix}{commit_id}-made")
        ledger = Ledger(epoch, commit_id, cycle, metadata.uuid, "", {})
        append = CommitRequest(
            name,
            commit_id,
            look_up(metadata.view(MAIN, key)).version,
            key,
            LedgerProperty.template(ledger, {}, SNAPSHOT_ID),
            {key: ledger.to_json(), _COMMIT_KEY: by},
            [*map(target.as_staged, written)],
            work_branch=request.work_branch,
            file_prefix=prefix,
        )
        fault_point("before_rejected_commit")
        outcome = self._commit(append)
        fault_point("after_rejected_commit")
        if outcome.status is not CommitStatus.COMMITTED:  # another coordinator may have committed
            raise CatalogUnavailableError(f"{name}: rejected rows wait: {outcome.reason}")
        log.info(
            "table %s: appended %s to %s",
            request.table,
            pluralize(announced["rows"], "rejected row"),
            name,
        )
        table.delete_file(announced["path"])


def _has(metadata: TableMetadata, by: str, key: str, stamp: tuple[Epoch, int]) -> bool:
    """Return True if the table contains the rows from this commit or from a later commit."""
    ledger = look_up(metadata.view(MAIN, key)).ledger
    if ledger is not None and (ledger.epoch, ledger.cycle) >= stamp:
        return True
    # earlier releases did not write a ledger
    newest = itertools.islice(metadata.ancestors(metadata.head(MAIN)), _SEARCHED_SNAPSHOTS)
    return any(snapshot["summary"].get(_COMMIT_KEY) == by for snapshot in newest)
