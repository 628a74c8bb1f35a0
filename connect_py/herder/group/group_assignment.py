"""`GroupAssignment`: the part of the group's assignment that this worker applies."""

from __future__ import annotations

import threading
from collections.abc import Set

from connect_py.herder.group.worker_group import Share, WorkerGroup
from connect_py.herder.local_work.work_assignment import WorkAssignment
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.control_records import NO_ITEMS, AssignmentVersion, Item, Items


class GroupAssignment(WorkAssignment):
    """Tracks the share of the group's assignment that this worker applied last.

    A share contains the connectors and tasks that are assigned to this worker. Changed only by the
    herder's thread.
    """

    def __init__(self, group: WorkerGroup, store: ConfigStore, changed: threading.Event) -> None:
        """Create an empty assignment.

        `changed` is set if some connectors or tasks could not be started yet.
        """
        self._group = group
        self._store = store
        self._changed = changed
        self._items: Items = NO_ITEMS
        self._generation = 0
        self._applied_version = AssignmentVersion()
        self._working = False

    @property
    def working(self) -> bool:
        """Return True if this worker has applied an assignment and has a lease."""
        return self._working

    def is_new(self, share: Share) -> bool:
        """Return True if a share has not been applied yet."""
        return (share.version, share.working) != (self._applied_version, self._working)

    def has_new_version(self, share: Share) -> bool:
        """Return True if a share is part of an assignment that has not been applied yet."""
        return share.version != self._applied_version

    def begin(self, share: Share) -> None:
        """Start applying a share. Its items replace the items of the previous share."""
        if self.is_new(share):
            self._changed.set()
            self._generation = max(self._generation, share.generation)
        self._items = share.items if share.working else NO_ITEMS

    def finish(self, share: Share) -> None:
        """Mark a share as applied.

        The caller has started the share's items and has stopped, or is stopping, all other items.
        """
        self._applied_version, self._working = share.version, share.working

    # WorkAssignment

    def assigned(self) -> Set[Item] | None:
        return self._items

    def claim(self, items: Items) -> Items:
        if self._store.snapshot().offset < self._group.share().config_offset:
            # the assignment is based on a newer configuration than the one this worker has read
            self._changed.set()
            return NO_ITEMS
        return self._group.claim(items)

    def set_running(self, items: Items) -> None:
        self._group.set_running(items)

    def may_publish(self) -> bool:
        return self._group.working()

    def generation(self) -> int:
        return self._generation
