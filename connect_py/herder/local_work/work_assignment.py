"""`WorkAssignment`: determines which connectors and tasks this worker may run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set

from connect_py.storage.control_records import Item, Items


class WorkAssignment(ABC):
    """Determines which items (connectors and tasks) this worker may run.

    `may_publish` and `generation` are thread-safe. The other methods are called only on the
    herder's thread.
    """

    @abstractmethod
    def assigned(self) -> Set[Item] | None:
        """Return the assigned items, or None if all configured items are assigned."""

    @abstractmethod
    def claim(self, items: Items) -> Items:
        """Return the items that may be started now. From then on, they count as running."""

    @abstractmethod
    def set_running(self, items: Items) -> None:
        """Set the items that may be running on this worker. Called after every change."""

    @abstractmethod
    def may_publish(self) -> bool:
        """Return False if this worker has lost its assignment and must not publish statuses."""

    @abstractmethod
    def generation(self) -> int:
        """Return the group's generation, which is part of each published status."""


class AllItems(WorkAssignment):
    """Assigns all configured items to a worker in standalone mode."""

    def assigned(self) -> Set[Item] | None:
        return None

    def claim(self, items: Items) -> Items:
        return items

    def set_running(self, items: Items) -> None:
        pass

    def may_publish(self) -> bool:
        return True

    def generation(self) -> int:
        return 0
