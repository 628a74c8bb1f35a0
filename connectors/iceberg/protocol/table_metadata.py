"""`TableMetadata`: Iceberg's table metadata, and the view of it that the commit protocol uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from connectors.iceberg.protocol.commit_request import COMMIT_ID_KEY, MAIN
from connectors.iceberg.protocol.ledger import (
    LedgerFormatError,
    LedgerProperty,
    SnapshotView,
    TableView,
)
from connectors.iceberg.protocol.own_refs import UNPUBLISHED_PREFIX

# table properties
WRITE_MODES: Final = ("write.merge.mode", "write.update.mode", "write.delete.mode")
LEDGERS: Final = 20  # maximum number of ledgers in a view; older ledgers are irrelevant
Snapshot = Mapping[str, Any]  # `snapshot-id`, `summary`, and optionally `parent-snapshot-id`


class TableMetadata:
    """One version of a table's metadata. No method accesses the catalog."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Create metadata from the JSON document of Iceberg's table specification."""
        self._document = document
        self.uuid = str(document["table-uuid"])
        self.format_version = int(document["format-version"])
        self.location = str(document["location"])
        self.properties: Mapping[str, str] = document.get("properties") or {}
        # directory in which Iceberg's writers create data files for an unpartitioned table
        self.data_location = self.properties.get("write.data.path", f"{self.location}/data").rstrip(
            "/"
        )
        current = document["current-schema-id"]
        self.schema: Mapping[str, Any] = next(
            each for each in document["schemas"] if each["schema-id"] == current
        )
        self.spec = self.spec_of(document["default-spec-id"])

    @property
    def earlier_files(self) -> Sequence[str]:
        """Metadata files of earlier versions, from the metadata log."""
        return [each["metadata-file"] for each in self._document.get("metadata-log") or ()]

    def spec_of(self, spec_id: int) -> Mapping[str, Any]:
        """Return the partition spec with this ID."""
        return next(
            spec for spec in self._document["partition-specs"] if spec["spec-id"] == spec_id
        )

    @cached_property
    def snapshots(self) -> Mapping[int, Snapshot]:
        """Snapshots by ID."""
        return {
            each["snapshot-id"]: {**each, "summary": each.get("summary") or {}}
            for each in self._document.get("snapshots") or ()
        }

    @cached_property
    def refs(self) -> Mapping[str, int]:
        """Snapshot IDs of branches and tags by name."""
        return {
            name: ref["snapshot-id"] for name, ref in (self._document.get("refs") or {}).items()
        }

    @cached_property
    def tags(self) -> frozenset[str]:
        """Names of the tags."""
        return frozenset(
            name for name, ref in (self._document.get("refs") or {}).items() if ref["type"] == "tag"
        )

    def with_ref(self, name: str, snapshot: int | None) -> TableMetadata:
        """Return a copy in which a branch refers to `snapshot`.

        If `snapshot` is None, the copy does not contain the branch.
        """
        refs = {key: ref for key, ref in (self._document.get("refs") or {}).items() if key != name}
        if snapshot is not None:
            refs[name] = {"snapshot-id": snapshot, "type": "branch"}
        return TableMetadata({**self._document, "refs": refs})

    @cached_property
    def snapshot_log(self) -> Sequence[tuple[int, int]]:
        """Changes to main, oldest first, as pairs of Unix time in milliseconds and snapshot ID."""
        return [
            (each["timestamp-ms"], each["snapshot-id"])
            for each in self._document.get("snapshot-log") or ()
        ]

    def schema_of(self, snapshot: int) -> Mapping[str, Any]:
        """Return the schema that readers use for a snapshot."""
        schema_id = self.snapshots[snapshot].get("schema-id")
        return next(
            (each for each in self._document["schemas"] if each["schema-id"] == schema_id),
            self.schema,
        )

    def head(self, ref: str) -> Snapshot | None:
        """Return the parent of the next commit to a ref, or None if the table has no snapshot.

        A missing branch starts at main.
        """
        main = self.refs.get(MAIN, self._document.get("current-snapshot-id"))
        snapshot_id = self.refs.get(ref, main)
        return self.snapshots.get(snapshot_id) if snapshot_id is not None else None

    def commit_ref(self, ref: str, unpublished: str | None) -> str:
        """Return the ref that a connector commits to.

        If the branch with commits awaiting approval is ahead of `ref`, the result is that branch.
        """
        ahead = self.refs.get(unpublished) if unpublished is not None else None
        if ahead is None or any(
            each["snapshot-id"] == ahead for each in self.ancestors(self.head(ref))
        ):
            return ref
        return str(unpublished)

    def has_unpublished(self, ref: str) -> bool:
        """Return True if a connector has commits awaiting approval for a ref."""
        return any(
            self.commit_ref(ref, name) == name
            for name in self.refs
            if name.startswith(UNPUBLISHED_PREFIX)
        )

    def ancestors(self, snapshot: Snapshot | None) -> Iterator[Snapshot]:
        """Iterate over a snapshot and its existing ancestors, newest first."""
        while snapshot is not None:
            yield snapshot
            parent = snapshot.get("parent-snapshot-id")
            snapshot = self.snapshots.get(parent) if parent is not None else None

    def is_empty(self, ref: str) -> bool:
        """Return True if the head has no data files according to its summary.

        This is only an estimate, because Iceberg's counts are wrong on some branches.
        """
        head = self.head(ref)
        return head is None or head["summary"].get("total-data-files") == "0"

    @property
    def is_sorted(self) -> bool:
        """True if the table has a sort order."""
        return bool(self._document.get("default-sort-order-id"))

    def column_names(self) -> list[str]:
        """Return the names of the top-level columns in order."""
        return [column["name"] for column in self.schema["fields"]]

    def names_by_id(self) -> Mapping[int, str]:
        """Return the current names of the top-level columns by field ID."""
        return {column["id"]: column["name"] for column in self.schema["fields"]}

    def column_ids(self, schema_id: int) -> Mapping[str, int]:
        """Return the field IDs of the top-level columns by their names in a schema."""
        schemas = self._document["schemas"]
        schema = next((each for each in schemas if each["schema-id"] == schema_id), self.schema)
        return {column["name"]: column["id"] for column in schema["fields"]}

    def identifier_columns(self) -> tuple[str, ...]:
        """Return the names of the top-level columns that are identifier fields."""
        ids = set(self.schema.get("identifier-field-ids") or ())
        return tuple(column["name"] for column in self.schema["fields"] if column["id"] in ids)

    def find_commit(self, ref: str, commit_id: str) -> int | None:
        """Return the ID of the snapshot that a commit created on a ref, or None."""
        for snapshot in self.ancestors(self.head(ref)):
            if snapshot["summary"].get(COMMIT_ID_KEY) == commit_id:
                return int(snapshot["snapshot-id"])
        return None

    def view(self, ref: str, key: str) -> TableView:
        """Return the metadata that the commit protocol needs, with the ledgers under `key`."""
        head = self.head(ref)
        ancestors: list[SnapshotView] = []
        complete, ledgers, oldest = True, 0, 0
        for snapshot in self.ancestors(head):
            # format version 1 has no sequence numbers, so all snapshots are included
            oldest = snapshot.get("sequence-number", 0)
            ledger = snapshot["summary"].get(key)
            ancestors.append(SnapshotView(snapshot["snapshot-id"], ledger))
            ledgers += ledger is not None
            if ledgers == LEDGERS:
                break
            parent = snapshot.get("parent-snapshot-id")
            complete = parent is None or parent in self.snapshots
        return TableView(
            uuid=self.uuid,
            ancestors=ancestors,
            complete=complete,
            present=frozenset(
                n for n, each in self.snapshots.items() if each.get("sequence-number", 0) >= oldest
            ),
            property=self.properties.get(key),
            replaced=ledgers == 0 and not self.is_empty(ref) and self._is_replaced(head, key),
            branch_missing=ref != MAIN and ref not in self.refs,
        )

    def _is_replaced(self, head: Snapshot | None, key: str) -> bool:
        """Return True if the head and the snapshot in the property have no common ancestor."""
        try:
            prop = LedgerProperty.from_json(self.properties.get(key, ""))
        except LedgerFormatError:
            return False
        if prop.ledger.table != self.uuid:  # copied from another table
            return False
        ancestors = {snapshot["snapshot-id"] for snapshot in self.ancestors(head)}
        snapshot = self.snapshots.get(prop.snapshot)
        return all(each["snapshot-id"] not in ancestors for each in self.ancestors(snapshot))
