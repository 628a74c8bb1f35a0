"""`WorkAssignment`: connectors and tasks that this worker may run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set

from connect_py.storage.control_records import Item, Items


class WorkAssignment(ABC):
    """Items that the group assigns to this worker.

    `may_publish` and `generation` are thread-safe; the other methods are called only on the
    herder's thread.
    """

    @abstractmethod
    def assigned(self) -> Set[Item] | None:
        """Return the assigned items. None: all configured items."""

    @abstractmethod
    def claim(self, items: Items) -> Items:
        """Return the items that may be started now, and count them as running from now on."""

    @abstractmethod
    def set_running(self, items: Items) -> None:
        """Receive the items that may be running here after every change."""

    @abstractmethod
    def may_publish(self) -> bool:
        """Return False if this worker has lost its assignment and must not publish statuses."""

    @abstractmethod
    def generation(self) -> int:
        """Return the generation of the group, which is part of the statuses."""


class AllItems(WorkAssignment):
    """Assignment of a worker without a group."""

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
