"""`WorkerGroup`: one worker's membership as it runs: the plain states under a lock, fed by the
topic's reader."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from connect_py.clock import Clock
from connect_py.herder.group.group_view import GroupView
from connect_py.herder.group.leader_state import Decision, LeaderState
from connect_py.herder.group.member_state import MemberState, Phase
from connect_py.herder.group.timings import Timings
from connect_py.storage.control_records import NOTHING, Assignment, Epoch, Hello, Item, Items, Turn


@dataclass(frozen=True, slots=True)
class Share:
    """What this worker has to do by the assignment that it works by."""

    turn: Turn
    generation: int
    config_offset: int
    items: Items
    joined: bool  # the leader knows this member
    working: bool  # it has a lease


class WorkerGroup:
    """Satisfies `ControlListener`. Every method may be called from any thread and returns at
    once."""

    def __init__(
        self,
        url: str,
        timings: Timings,
        clock: Clock,
        config_offset: Callable[[], int],
        on_change: Callable[[], None],
        on_lease: Callable[[float | None], None],
    ) -> None:
        """Prepare.

        Args: url: Where other workers reach this one's REST API. config_offset: How far the config
            topic was read. on_change: Something was read or decided that others may want to look
            at; on any thread, without the lock. on_lease: Takes the time by which everything that
            runs here must have ended by itself; None: no such time.
        """
        self.url = url
        self.timings = timings
        self._clock = clock
        self._config_offset = config_offset
        self._on_change = on_change
        self._on_lease = on_lease
        self._lock = threading.RLock()
        # of leases, one after the other: an ended one must not be reported last
        self._telling = threading.Lock()
        self._view = GroupView()
        self._member: MemberState | None = None
        self._deadline: float | None = None
        self._alive: set[str] = set()  # URLs heard of since the topic was read to its end
        self._at_end = False

    # ------------------------------------------------------------------ ControlListener, on the
    # reader's thread

    def on_hello(self, hello: Hello) -> None:
        now = self._clock.monotonic()
        with self._lock:
            self._view.take_hello(hello, now)
            if self._at_end:
                self._alive.add(hello.url)
            if self._member is not None:
                self._member.heard_back(hello, now)
        self._changed()

    def on_left(self, member: str) -> None:
        with self._lock:
            self._view.take_left(member)
            if self._member is not None:
                self._member.removed(member)
        self._changed()

    def on_epoch(self, epoch: Epoch) -> None:
        with self._lock:
            self._view.take_epoch(epoch)
            if self._member is not None:
                self._member.take_epoch(epoch.number)
        self._changed()

    def on_assignment(self, assignment: Assignment) -> None:
        with self._lock:
            if self._view.take_assignment(assignment) and self._member is not None:
                self._member.take_assignment(assignment, self._clock.monotonic())
        self._changed()

    def on_topic_lost(self) -> None:
        with self._lock:
            self._view.topic_lost(self._clock.monotonic())

    def _changed(self) -> None:
        """Tell who watches: about the lease first, then that there is something to look at."""
        self._tell_lease()
        self._on_change()

    def _tell_lease(self) -> None:
        with self._telling:
            with self._lock:
                deadline = None if self._member is None else self._member.deadline()
                changed, self._deadline = deadline != self._deadline, deadline
            if changed:
                self._on_lease(deadline)

    # ------------------------------------------------------------------ the member, for the herder

    def join(self) -> bool:
        """Become a member once no other life of this URL may hold a lease; whether this worker is
        one.

        Raises:
            UrlInUseError: Another live worker has this URL.
        """
        now = self._clock.monotonic()
        with self._lock:
            if self._member is None:
                self._member = MemberState(
                    self.url, self.timings, lambda: uuid.uuid4().hex[:12], now
                )
            return self._member.join(self._view, now)

    def share(self) -> Share:
        """What to do now; nothing once the lease has ended."""
        with self._lock:
            member, last = self._member, self._view.assignment
            if member is None:
                return Share(Turn(), 0, -1, NOTHING, joined=False, working=False)
            working = member.check(self._clock.monotonic()) and member.lease_until is not None
            return Share(
                member.applied,
                member.generation,
                member.config_offset,
                member.assigned,
                joined=last is not None and member.id in last.places,
                working=working,
            )

    def working(self) -> bool:
        """Whether this worker may speak for what it runs: its lease has not ended."""
        with self._lock:
            return self._member is None or self._member.check(self._clock.monotonic())

    def claim(self, items: Items) -> Items:
        """Which of these may be started at this moment; they count as held from now on."""
        now = self._clock.monotonic()
        with self._lock:
            if self._member is None:
                return NOTHING
            claimed = items & self._member.may_start(now)
            self._member.holds(self._member.running | claimed, self._view, now)
            return claimed

    def holds(self, items: Items) -> None:
        """What may be running here: started, claimed, and not surely stopped.

        The same items again, as while the broker is away, wake no thread.
        """
        with self._lock:
            member = self._member
            if member is None:
                return
            before = member.id, member.running
            member.holds(items, self._view, self._clock.monotonic())
            changed = before != (member.id, member.running)
        if changed:
            self._changed()
        else:
            self._tell_lease()

    def leave(self) -> None:
        """The worker stops: it takes no more work, and says farewell once nothing is held."""
        with self._lock:
            if self._member is not None:
                self._member.leave(self._view, self._clock.monotonic())

    # ------------------------------------------------------------------ the member, for the sender

    def farewells(self) -> Sequence[str]:
        """Lives of this worker that ended with nothing left running; to be announced now, before
        any hello."""
        with self._lock:
            return [] if self._member is None else self._member.farewells()

    def hello(self) -> Hello | None:
        """The hello to send now, if one is due."""
        offset = self._config_offset()
        with self._lock:
            return (
                None
                if self._member is None
                else self._member.hello(self._clock.monotonic(), offset)
            )

    def acknowledged(self, member: str, number: int) -> None:
        """A hello is in the topic."""
        with self._lock:
            if self._member is not None:
                self._member.acknowledged(member, number, self._clock.monotonic())
        self._changed()

    def undelivered(self, member: str, number: int) -> None:
        """A hello certainly did not arrive, or too late to count."""
        with self._lock:
            if self._member is not None:
                self._member.lost(member, number)

    def look_at_lease(self) -> None:
        """Notice the end of the lease; called often enough by the sender."""
        with self._lock:
            member = self._member
            if (
                member is None
                or member.phase is not Phase.MEMBER
                or member.check(self._clock.monotonic())
            ):
                return
        self._changed()

    # ------------------------------------------------------------------ others

    def leader_url(self) -> str | None:
        """Where the leader is reached, unless it was not heard of for a session."""
        now = self._clock.monotonic()
        with self._lock:
            epoch = self._view.epoch
            if epoch is None:
                return None
            alive = (
                now < heard.at + self.timings.session
                for heard in self._view.members.values()
                if heard.hello.url == epoch.worker_url
            )
            return epoch.worker_url if any(alive) else None

    def urls(self) -> list[str]:
        """Where the workers are reached that were heard of within a session, and this one."""
        now = self._clock.monotonic()
        with self._lock:
            members = self._view.members.values()
            return sorted(
                {self.url} | {h.hello.url for h in members if now < h.at + self.timings.session}
            )

    def read_to_end(self) -> None:
        """The topic was read to its end: what comes from now on is said by workers that live."""
        with self._lock:
            self._at_end = True

    def lone_leader(self, *, surely: bool) -> str | None:
        """The URL of another worker that leads without transactions; `surely`: it was heard of
        since the start."""
        with self._lock:
            epoch = self._view.epoch
            if epoch is None or not epoch.alone or epoch.worker_url == self.url:
                return None
            return epoch.worker_url if not surely or epoch.worker_url in self._alive else None

    def has_others(self) -> bool:
        """Whether other workers live that were heard of since the start."""
        now = self._clock.monotonic()
        with self._lock:
            urls = {
                h.hello.url
                for h in self._view.members.values()
                if now < h.at + self.timings.session
            }
            return bool((urls & self._alive) - {self.url})

    def owner_url(self, item: Item) -> str | None:
        """Where the worker is reached that runs an item."""
        with self._lock:
            return None if self._view.assignment is None else self._view.assignment.owner_url(item)

    def is_moving(self, item: Item) -> bool:
        """Whether no worker has an item and one gets it soon: the item does not wait for a worker
        that went."""
        with self._lock:
            last = self._view.assignment
            if last is None or last.owner_url(item) is not None:
                return False
            return item not in last.awaited or not last.delay_ms

    def running_elsewhere(self) -> Items:
        """What other members said that they run, or have not stopped yet."""
        with self._lock:
            own = None if self._member is None else self._member.id
            found = (
                heard.hello.assigned | heard.hello.stopping
                for member, heard in self._view.members.items()
                if member != own
            )
            return frozenset().union(*found)

    # ------------------------------------------------------------------ the leader

    def traces(self) -> tuple[int, int, bool]:
        """Highest epoch anybody has heard of, highest generation, and whether the topic tells of
        earlier leaders."""
        with self._lock:
            epoch, last = self._view.epoch, self._view.assignment
            generation = max(
                0 if epoch is None else epoch.generation, 0 if last is None else last.generation
            )
            return (
                self._view.highest_epoch_heard(),
                generation,
                epoch is not None and last is not None and last.complete,
            )

    def begin_term(self, epoch: Epoch, *, trusted: bool) -> LeaderState:
        """The state of a term whose epoch was announced."""
        with self._lock:
            return LeaderState(
                epoch, self._view, self.timings, self._clock.monotonic(), trusted=trusted
            )

    def superseded(self, leader: LeaderState) -> bool:
        with self._lock:
            return leader.superseded

    def wants_end(self, leader: LeaderState) -> bool:
        with self._lock:
            return leader.wants_end(self._clock.monotonic())

    def decide(
        self, leader: LeaderState, configured: Items, config_offset: int, caught_up: float
    ) -> Decision | None:
        with self._lock:
            return leader.decide(configured, config_offset, self._clock.monotonic(), caught_up)

    def failed(self, leader: LeaderState, decision: Decision) -> None:
        with self._lock:
            leader.failed(decision)

    def deadline(self, leader: LeaderState) -> float:
        with self._lock:
            return leader.deadline()
