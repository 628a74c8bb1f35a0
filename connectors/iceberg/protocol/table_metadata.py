"""`TableMetadata`: the table as Iceberg's metadata JSON describes it, and what the protocol reads
from it."""

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

# of the table's properties
WRITE_MODES: Final = ("write.merge.mode", "write.update.mode", "write.delete.mode")
LEDGERS: Final = 20  # of our snapshots a view shows that many; older ones decide nothing
Snapshot = Mapping[str, Any]  # with `snapshot-id`, perhaps `parent-snapshot-id`, and `summary`


class TableMetadata:
    """One version of the metadata. Nothing here asks the catalog."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """`document`: of Iceberg's table specification."""
        self._document = document
        self.uuid = str(document["table-uuid"])
        self.format_version = int(document["format-version"])
        self.location = str(document["location"])
        self.properties: Mapping[str, str] = document.get("properties") or {}
        # Where Iceberg's own writers would put data files of an unpartitioned table.
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
        """Metadata files of earlier versions, as far as the table names them."""
        return [each["metadata-file"] for each in self._document.get("metadata-log") or ()]

    def spec_of(self, spec_id: int) -> Mapping[str, Any]:
        """The partition spec of this id."""
        return next(
            spec for spec in self._document["partition-specs"] if spec["spec-id"] == spec_id
        )

    @cached_property
    def snapshots(self) -> Mapping[int, Snapshot]:
        """By id."""
        found = self._document.get("snapshots") or ()
        return {
            each["snapshot-id"]: {**each, "summary": each.get("summary") or {}} for each in found
        }

    @cached_property
    def refs(self) -> Mapping[str, int]:
        """Snapshot ids of branches and tags."""
        return {
            name: ref["snapshot-id"] for name, ref in (self._document.get("refs") or {}).items()
        }

    @cached_property
    def tags(self) -> frozenset[str]:
        """Names of the refs that are tags."""
        return frozenset(
            name for name, ref in (self._document.get("refs") or {}).items() if ref["type"] == "tag"
        )

    def with_ref(self, name: str, snapshot: int | None) -> TableMetadata:
        """The table as it would be with a branch at this snapshot, or without it."""
        refs = {key: ref for key, ref in (self._document.get("refs") or {}).items() if key != name}
        if snapshot is not None:
            refs[name] = {"snapshot-id": snapshot, "type": "branch"}
        return TableMetadata({**self._document, "refs": refs})

    @cached_property
    def snapshot_log(self) -> Sequence[tuple[int, int]]:
        """When, in milliseconds, main came to be at which snapshot; oldest first."""
        return [
            (each["timestamp-ms"], each["snapshot-id"])
            for each in self._document.get("snapshot-log") or ()
        ]

    def schema_of(self, snapshot: int) -> Mapping[str, Any]:
        """The schema with which a snapshot was written, and with which readers of it see it."""
        written = self.snapshots[snapshot].get("schema-id")
        return next(
            (each for each in self._document["schemas"] if each["schema-id"] == written),
            self.schema,
        )

    def head(self, ref: str) -> Snapshot | None:
        """The snapshot that a commit to this ref follows; a missing branch begins at main. None:
        none."""
        found = self.refs.get(ref, self.refs.get(MAIN, self._document.get("current-snapshot-id")))
        return self.snapshots.get(found) if found is not None else None

    def commit_ref(self, ref: str, unpublished: str | None) -> str:
        """Where a connector's commits go: the branch of unpublished ones while it is ahead of the
        ref, else the ref."""
        ahead = self.refs.get(unpublished) if unpublished is not None else None
        if ahead is None or any(
            each["snapshot-id"] == ahead for each in self.ancestors(self.head(ref))
        ):
            return ref
        return str(unpublished)

    def has_unpublished(self, ref: str) -> bool:
        """Whether a connector has commits that readers of a ref do not see."""
        return any(
            self.commit_ref(ref, name) == name
            for name in self.refs
            if name.startswith(UNPUBLISHED_PREFIX)
        )

    def ancestors(self, snapshot: Snapshot | None) -> Iterator[Snapshot]:
        """A snapshot and its ancestors, newest first, as far as they are still there."""
        while snapshot is not None:
            yield snapshot
            parent = snapshot.get("parent-snapshot-id")
            snapshot = self.snapshots.get(parent) if parent is not None else None

    def is_empty(self, ref: str) -> bool:
        """Whether the head holds no data files, by its summary: Iceberg miscounts on some
        branches."""
        head = self.head(ref)
        return head is None or head["summary"].get("total-data-files") == "0"

    @property
    def is_sorted(self) -> bool:
        """Whether the table names an order in which its files are to be sorted."""
        return bool(self._document.get("default-sort-order-id"))

    def column_names(self) -> list[str]:
        """Of the top-level columns, in order."""
        return [column["name"] for column in self.schema["fields"]]

    def names_by_id(self) -> Mapping[int, str]:
        """Present names of the top-level columns."""
        return {column["id"]: column["name"] for column in self.schema["fields"]}

    def column_ids(self, schema_id: int) -> Mapping[str, int]:
        """Field ids of the top-level columns by the names that they had in a schema of the
        table."""
        schemas = self._document["schemas"]
        found = next(
            (schema for schema in schemas if schema["schema-id"] == schema_id), self.schema
        )
        return {column["name"]: column["id"] for column in found["fields"]}

    def identifier_columns(self) -> tuple[str, ...]:
        """Names of the identifier fields that are top-level columns."""
        ids = set(self.schema.get("identifier-field-ids") or ())
        return tuple(column["name"] for column in self.schema["fields"] if column["id"] in ids)

    def find_commit(self, ref: str, commit_id: str) -> int | None:
        """The ancestor of the ref's head that this commit made, if it is there."""
        for snapshot in self.ancestors(self.head(ref)):
            if snapshot["summary"].get(COMMIT_ID_KEY) == commit_id:
                return int(snapshot["snapshot-id"])
        return None

    def view(self, ref: str, key: str) -> TableView:
        """What the protocol asks, of the ledger under this key."""
        head = self.head(ref)
        ancestors: list[SnapshotView] = []
        complete, ledgers, oldest = True, 0, 0
        for snapshot in self.ancestors(head):
            # format 1 has none: there all snapshots count
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
        """Whether our property names a snapshot that the head has nothing in common with."""
        try:
            named = LedgerProperty.from_json(self.properties.get(key, ""))
        except LedgerFormatError:
            return False
        if named.ledger.table != self.uuid:  # copied from another table
            return False
        mine = {snapshot["snapshot-id"] for snapshot in self.ancestors(head)}
        return all(
            s["snapshot-id"] not in mine for s in self.ancestors(self.snapshots.get(named.snapshot))
        )
