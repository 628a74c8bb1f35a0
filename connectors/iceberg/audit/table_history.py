"""What a table remembers: snapshots along one ref, ledger properties, and what its manifests say of data files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectors.iceberg.staging.staged_file_name import PREFIX

if TYPE_CHECKING:
    from connectors.iceberg.spark.lake_client import LakeClient
    from connectors.iceberg.spark.lake_session import LakeSession

LEDGER_PREFIX = "connect-py.ledger."


@dataclass(frozen=True, slots=True)
class HistoricSnapshot:
    """One ancestor of the ref's head."""

    id: int
    timestamp_ms: int
    operation: str | None
    summary: Mapping[str, str]
    stagers: tuple[str, ...] = ()  # epochs (`<number>-<nonce>`) in the names of the staged files that it added

    @property
    def groups(self) -> list[str]:
        """Connect groups whose ledger it carries."""
        return sorted(key.removeprefix(LEDGER_PREFIX) for key in self.summary if key.startswith(LEDGER_PREFIX))


@dataclass(frozen=True, slots=True)
class TableHistory:
    """All of it, as the catalog knows it at one moment."""

    table: str
    ref: str
    uuid: str
    ref_exists: bool  # False: the history is main's
    properties: Mapping[str, str]  # group -> text of the ledger property
    ancestors: Sequence[HistoricSnapshot]  # newest first
    complete: bool  # False: the oldest ancestor's parent was expired
    present: Mapping[int, frozenset[str]]  # every snapshot that is left -> groups whose ledger it carries
    live_files: int  # data files of the head
    live_twice: tuple[str, ...] = ()  # paths that the head's manifests name more than once
    added_twice: tuple[tuple[str, int, int], ...] = ()  # path, older and newer snapshot that added it

    @staticmethod
    def read(lake: LakeClient | LakeSession, table: str, ref: str) -> TableHistory:
        """Ask the catalog, and read every manifest that the ref's snapshots have left.

        Raises:
            TableMissingError, TableForbiddenError, CatalogUnavailableError: As the catalog answers.
        """
        return TableHistory.of(table, ref, lake.history(table, ref, LEDGER_PREFIX, PREFIX))

    @staticmethod
    def of(table: str, ref: str, answer: Mapping[str, Any]) -> TableHistory:
        """From the form of `LakeSession.history`."""
        properties = {key.removeprefix(LEDGER_PREFIX): text for key, text in answer["properties"].items()}
        ancestors = [
            HistoricSnapshot(int(s["id"]), s["timestamp"], s["operation"], s["summary"], tuple(s["stagers"]))
            for s in answer["ancestors"]
        ]
        present = {int(s["id"]): frozenset(s["groups"]) for s in answer["present"]}
        added_twice = tuple((t["path"], int(t["snapshot"]), int(t["again"])) for t in answer["added_twice"])
        return TableHistory(
            table, ref, answer["uuid"], answer["ref_exists"], properties, ancestors, answer["complete"], present,
            answer["live"], tuple(answer["live_twice"]), added_twice,
        )  # fmt: skip
