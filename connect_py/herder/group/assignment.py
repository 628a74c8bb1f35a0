"""Sticky and balanced distribution of connectors and tasks to the members of a worker group.

An item is a connector or a task. The functions are pure. They perform no I/O, read no clock, and do
not depend on the iteration order of mappings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from connect_py.model import ConnectorTaskId
from connect_py.storage.control_records import NO_ITEMS, Item, Items, sort_key


@dataclass(frozen=True, slots=True)
class MemberLoad:
    """Current items of one member, from which the balance is computed."""

    url: str
    items: Items = NO_ITEMS  # items that are assigned to the member and not lost
    # True if the member may have failed or is not eligible; it then retains its items but receives
    # no new ones
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class PendingItems:
    """Lost items, which wait for their worker to return.

    Each round passes them to the next round.
    """

    # URL of the last worker that ran each item
    awaited: Mapping[Item, str] = field(default_factory=dict)
    until: float | None = None  # when the wait ends, on the leader's monotonic clock


@dataclass(frozen=True, slots=True)
class Balance:
    """Target items of all members, and the pending items for the next round."""

    targets: Mapping[str, Items]  # by member ID, for every member
    pending: PendingItems


def balance_items(
    configured: Items,
    loads: Mapping[str, MemberLoad],
    lost: Mapping[Item, str],
    pending: PendingItems,
    now: float,
    max_delay: float,
) -> Balance:
    """Return the target items of each member.

    A member retains its items unless they are no longer configured or the loads differ by more than
    one. Unassigned items are assigned to the member with the smallest load. After the first loss,
    lost items wait up to `max_delay` seconds for their worker to return. No items are moved during
    this time. Connectors and tasks are balanced separately.

    Args:
        configured: All configured connectors and tasks.
        loads: Members by ID.
        lost: Items whose worker has left since the last call, with that worker's URL.
        pending: `Balance.pending` from the last call.
        now: Seconds on a monotonic clock.
        max_delay: Maximum wait for lost items, in seconds.
    """
    claims = Counter(item for load in loads.values() for item in load.items)
    targets = {
        member: {item for item in load.items if item in configured and claims[item] == 1}
        for member, load in loads.items()
    }
    awaited = {
        item: url
        for item, url in {**pending.awaited, **lost}.items()
        if item in configured and not claims[item]
    }
    members_by_url = {load.url: member for member, load in loads.items() if not load.frozen}
    for item, url in list(awaited.items()):
        if url in members_by_url:
            # the worker has returned, so its items are assigned to it again
            targets[members_by_url[url]].add(item)
            del awaited[item]
    until = pending.until
    if not awaited:
        until = None
    elif until is None:
        until = now + max_delay
    if until is not None and now >= until and members_by_url:
        awaited, until = {}, None
    eligible_members = sorted(member for member, load in loads.items() if not load.frozen)
    if eligible_members:
        assigned_items = {item for items in targets.values() for item in items}
        unassigned_items = sorted(configured - assigned_items - awaited.keys(), key=sort_key)
        for is_task in (False, True):
            _ItemKind(targets, eligible_members, is_task).spread(
                (item for item in unassigned_items if isinstance(item, ConnectorTaskId) is is_task),
                balance=not awaited,
            )
    return Balance(
        {member: frozenset(items) for member, items in targets.items()},
        PendingItems(awaited, until),
    )


class _ItemKind:
    """Balances either the connectors or the tasks of the eligible members."""

    def __init__(
        self, targets: Mapping[str, set[Item]], eligible_members: list[str], is_task: bool
    ) -> None:
        self._targets = targets
        self._items: dict[str, list[Item]] = {
            member: sorted(
                (item for item in targets[member] if isinstance(item, ConnectorTaskId) is is_task),
                key=sort_key,
            )
            for member in eligible_members
        }
        self._counts_by_connector = {
            member: Counter(_connector(item) for item in items)
            for member, items in self._items.items()
        }

    def spread(self, unassigned_items: Iterable[Item], *, balance: bool) -> None:
        """Assign each unassigned item to the least loaded member.

        If `balance` is true, move items afterward until the loads differ by at most one.
        """
        for item in unassigned_items:
            self._give(item, self._least(item))
        while balance:
            most = max(self._items, key=lambda member: (len(self._items[member]), member))
            least = min(self._items, key=lambda member: (len(self._items[member]), member))
            if len(self._items[most]) - len(self._items[least]) <= 1:
                return
            self._move(most, least)

    def _least(self, item: Item) -> str:
        """Return the least loaded member.

        If several members have the same load, return the one with the fewest items of the same
        connector.
        """
        name = _connector(item)
        return min(
            self._items,
            key=lambda member: (
                len(self._items[member]),
                self._counts_by_connector[member][name],
                member,
            ),
        )

    def _move(self, source: str, target: str) -> None:
        """Move one item between members.

        The item is from the connector whose item count on `source` exceeds its count on `target` by
        the most.
        """
        source_counts, target_counts = (
            self._counts_by_connector[source],
            self._counts_by_connector[target],
        )
        item = max(
            self._items[source],
            key=lambda item: (
                source_counts[_connector(item)] - target_counts[_connector(item)],
                sort_key(item),
            ),
        )
        self._items[source].remove(item)
        source_counts[_connector(item)] -= 1
        self._targets[source].discard(item)
        self._give(item, target)

    def _give(self, item: Item, member: str) -> None:
        self._items[member].append(item)
        self._counts_by_connector[member][_connector(item)] += 1
        self._targets[member].add(item)


def _connector(item: Item) -> str:
    return item.connector if isinstance(item, ConnectorTaskId) else item
