"""`ConnectorTable`: a table and its settings in a connector's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg.protocol.table_metadata import TableMetadata

MAX_SECONDS: Final = 2_000_000  # 23 days, about the longest wait that operating systems support


class ConnectorTable:
    """A table and the connector that commits to it."""

    table: str
    connector: IcebergSinkConfig | None  # None if only the catalog is known

    @property
    def ref(self) -> str:
        """Return the ref that the connector commits to."""
        return (self.connector and self.connector.table(self.table).commit_branch) or "main"

    @property
    def group(self) -> str | None:
        """Return the connector's connect group, or None if there is no connector."""
        return self.connector.connect_group if self.connector is not None else None

    @property
    def own_ref(self) -> dict[str, str] | None:
        """Return the connector's commit ref by connect group, as the ledger check expects it."""
        return None if self.group is None else {self.group: self.ref}

    def commit_ref(self, metadata: TableMetadata, branch: str | None) -> str:
        """Return the branch, or the connector's commit ref if the branch is None.

        Raises:
            NotInHistoryError: The branch does not exist. A connector's branch is created by its
                first commit.
        """
        # imported here to reduce the startup time of commands
        from connectors.iceberg_tools.history.table_point import (
            resolve_ref,
        )

        if branch is not None and branch != "main":
            resolve_ref(metadata, branch)
        return branch or self.ref
