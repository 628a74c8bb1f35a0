"""Who should run what: a pure function, sticky and balanced. No I/O, no clock, no order of any
map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from connect_py.model import ConnectorTaskId
from connect_py.storage.control_records import NOTHING, Item, Items, order


@dataclass(frozen=True, slots=True)
class Seat:
    """A member as the division sees it."""

    url: str
    holds: Items = NOTHING  # what it was given and has not lost
    # keeps what it holds and gets nothing: it may be dead, or may not count yet
    frozen: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered from round to round: work of workers that went, and until when it waits
    for them."""

    # by item, the URL of the worker that had it
    awaited: Mapping[Item, str] = field(default_factory=dict)
    until: float | None = None  # on the leader's monotonic clock


@dataclass(frozen=True, slots=True)
class Division:
    """Who should have what, and what to remember."""

    targets: Mapping[str, Items]  # by member, all of them
    memory: Memory


def divide(
    configured: Items,
    seats: Mapping[str, Seat],
    lost: Mapping[Item, str],
    memory: Memory,
    now: float,
    max_delay: float,
) -> Division:
    """Return who should have what.

    What a member holds stays with it unless it is no longer configured or loads differ by more than
    one; what is free goes to the member with the least. Lost work waits `max_delay` seconds for its
    worker, counted from the first loss; nothing is moved meanwhile. Connectors and tasks are
    counted apart.

    Args:
        configured: All work there is.
        seats: Members by id.
        lost: Work whose worker went since the last call, with the URL of that worker.
        memory: Of the last call.
        now: Seconds on a monotonic clock.
    """
    claims = Counter(item for seat in seats.values() for item in seat.holds)
    targets = {
        member: {item for item in seat.holds if item in configured and claims[item] == 1}
        for member, seat in seats.items()
    }
    awaited = {
        item: url
        for item, url in {**memory.awaited, **lost}.items()
        if item in configured and not claims[item]
    }
    by_url = {seat.url: member for member, seat in seats.items() if not seat.frozen}
    for item, url in list(awaited.items()):
        if url in by_url:
            # it came back: it gets its own work, and no other work moves
            targets[by_url[url]].add(item)
            del awaited[item]
    until = memory.until
    if not awaited:
        until = None
    elif until is None:
        until = now + max_delay
    if until is not None and now >= until and by_url:
        awaited, until = {}, None
    counting = sorted(member for member, seat in seats.items() if not seat.frozen)
    if counting:
        taken = {item for items in targets.values() for item in items}
        free = sorted(configured - taken - awaited.keys(), key=order)
        for tasks in (False, True):
            _Kind(targets, counting, tasks).spread(
                (item for item in free if isinstance(item, ConnectorTaskId) is tasks),
                balance=not awaited,
            )
    return Division(
        {member: frozenset(items) for member, items in targets.items()}, Memory(awaited, until)
    )


class _Kind:
    """Connectors, or tasks: loads of the members that count."""

    def __init__(self, targets: Mapping[str, set[Item]], counting: list[str], tasks: bool) -> None:
        self._targets = targets
        self._items: dict[str, list[Item]] = {
            member: sorted(
                (item for item in targets[member] if isinstance(item, ConnectorTaskId) is tasks),
                key=order,
            )
            for member in counting
        }
        self._of_connector = {
            member: Counter(_connector(item) for item in items)
            for member, items in self._items.items()
        }

    def spread(self, free: Iterable[Item], *, balance: bool) -> None:
        """Give free work to the member with the least, then move as little as makes loads differ by
        one at most."""
        for item in free:
            self._give(item, self._least(item))
        while balance:
            most = max(self._items, key=lambda member: (len(self._items[member]), member))
            least = min(self._items, key=lambda member: (len(self._items[member]), member))
            if len(self._items[most]) - len(self._items[least]) <= 1:
                return
            self._move(most, least)

    def _least(self, item: Item) -> str:
        """Among the members with the least load, the one with the fewest tasks of the same
        connector."""
        name = _connector(item)
        return min(
            self._items,
            key=lambda member: (len(self._items[member]), self._of_connector[member][name], member),
        )

    def _move(self, giver: str, taker: str) -> None:
        """Move what is most crowded at the giver, compared with the taker."""
        mine, theirs = self._of_connector[giver], self._of_connector[taker]
        item = max(
            self._items[giver],
            key=lambda item: (mine[_connector(item)] - theirs[_connector(item)], order(item)),
        )
        self._items[giver].remove(item)
        mine[_connector(item)] -= 1
        self._targets[giver].discard(item)
        self._give(item, taker)

    def _give(self, item: Item, member: str) -> None:
        self._items[member].append(item)
        self._of_connector[member][_connector(item)] += 1
        self._targets[member].add(item)


def _connector(item: Item) -> str:
    return item.connector if isinstance(item, ConnectorTaskId) else item
