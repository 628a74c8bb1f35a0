"""`WorkerGroup`: thread-safe membership and leadership state of one worker.

A lock protects the state objects, which the control topic's reader thread updates.
"""

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
from connect_py.storage.control_records import (
    NO_ITEMS,
    Assignment,
    AssignmentVersion,
    Epoch,
    Heartbeat,
    Item,
    Items,
)


@dataclass(frozen=True, slots=True)
class Share:
    """Connectors and tasks of this worker in the last assignment that it has applied."""

    version: AssignmentVersion
    generation: int
    config_offset: int
    items: Items
    joined: bool  # True if the last assignment contains this member
    working: bool  # True if this member has a lease


class WorkerGroup:
    """Tracks the group for one worker, and implements `ControlListener`.

    All methods are thread-safe and never block.
    """

    def __init__(
        self,
        url: str,
        timings: Timings,
        clock: Clock,
        config_offset: Callable[[], int],
        on_change: Callable[[], None],
        on_lease: Callable[[float | None], None],
    ) -> None:
        """Create the group state.

        Args:
            url: URL at which other workers reach this worker's REST API.
            timings: Timeouts of the group.
            clock: Source of monotonic time.
            config_offset: Returns the offset up to which the config topic has been read.
            on_change: Called after every change, on any thread and without holding the lock.
            on_lease: Called with the time by which all connectors and tasks on this worker must
                have been terminated, or None if there is no such time.
        """
        self.url = url
        self.timings = timings
        self._clock = clock
        self._config_offset = config_offset
        self._on_change = on_change
        self._on_lease = on_lease
        self._lock = threading.RLock()
        # serializes the lease callbacks, so an older lease is never reported after a newer one
        self._lease_callback_lock = threading.Lock()
        self._view = GroupView()
        self._member: MemberState | None = None
        self._deadline: float | None = None
        # URLs of workers that sent a heartbeat after the topic had been read to its end
        self._heartbeat_urls: set[str] = set()
        self._has_read_to_end = False

    # ControlListener, called on the reader's thread

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        now = self._clock.monotonic()
        with self._lock:
            self._view.apply_heartbeat(heartbeat, now)
            if self._has_read_to_end:
                self._heartbeat_urls.add(heartbeat.url)
            if self._member is not None:
                self._member.read_back(heartbeat, now)
        self._notify()

    def on_left(self, member: str) -> None:
        with self._lock:
            self._view.remove_member(member)
            if self._member is not None:
                self._member.removed(member)
        self._notify()

    def on_epoch(self, epoch: Epoch) -> None:
        with self._lock:
            self._view.apply_epoch(epoch)
            if self._member is not None:
                self._member.apply_epoch(epoch.number)
        self._notify()

    def on_assignment(self, assignment: Assignment) -> None:
        with self._lock:
            if self._view.apply_assignment(assignment) and self._member is not None:
                self._member.apply_assignment(assignment, self._clock.monotonic())
        self._notify()

    def on_topic_lost(self) -> None:
        with self._lock:
            self._view.topic_lost(self._clock.monotonic())

    def _notify(self) -> None:
        """Report the lease if it has changed, and then report the change."""
        self._notify_lease()
        self._on_change()

    def _notify_lease(self) -> None:
        with self._lease_callback_lock:
            with self._lock:
                deadline = None if self._member is None else self._member.deadline()
                changed, self._deadline = deadline != self._deadline, deadline
            if changed:
                self._on_lease(deadline)

    # Member methods for the herder

    def join(self) -> bool:
        """Join the group unless another member with this URL may have a lease.

        Returns:
            True if this worker is a member.

        Raises:
            UrlInUseError: Another running worker has this URL.
        """
        now = self._clock.monotonic()
        with self._lock:
            if self._member is None:
                self._member = MemberState(
                    self.url, self.timings, lambda: uuid.uuid4().hex[:12], now
                )
            return self._member.join(self._view, now)

    def share(self) -> Share:
        """Return this worker's share, which contains no items if the lease has expired."""
        with self._lock:
            member, last = self._member, self._view.assignment
            if member is None:
                return Share(AssignmentVersion(), 0, -1, NO_ITEMS, joined=False, working=False)
            working = member.check(self._clock.monotonic()) and member.lease_until is not None
            return Share(
                member.applied,
                member.generation,
                member.config_offset,
                member.assigned,
                joined=last is not None and member.id in last.members,
                working=working,
            )

    def working(self) -> bool:
        """Return True if the lease has not expired.

        If it has expired, this worker must not publish the statuses of its connectors and tasks.
        """
        with self._lock:
            return self._member is None or self._member.check(self._clock.monotonic())

    def claim(self, items: Items) -> Items:
        """Return the items that may be started now. From then on, they count as running."""
        now = self._clock.monotonic()
        with self._lock:
            if self._member is None:
                return NO_ITEMS
            claimed = items & self._member.may_start(now)
            self._member.set_running(self._member.running | claimed, self._view, now)
            return claimed

    def set_running(self, items: Items) -> None:
        """Set the items that have been started or claimed and may still be running.

        A call that changes nothing does not wake any thread, because such calls are frequent during
        a broker outage.
        """
        with self._lock:
            member = self._member
            if member is None:
                return
            before = member.id, member.running
            member.set_running(items, self._view, self._clock.monotonic())
            changed = before != (member.id, member.running)
        if changed:
            self._notify()
        else:
            self._notify_lease()

    def leave(self) -> None:
        """Leave the group. The departure is announced after all items have stopped."""
        with self._lock:
            if self._member is not None:
                self._member.leave(self._view, self._clock.monotonic())

    # Member methods for the heartbeat sender

    def members_to_announce(self) -> Sequence[str]:
        """Remove and return the member IDs to announce as departed before the next heartbeat."""
        with self._lock:
            return [] if self._member is None else self._member.members_to_announce()

    def heartbeat(self) -> Heartbeat | None:
        """Return the heartbeat to send now, or None if none is due."""
        offset = self._config_offset()
        with self._lock:
            return (
                None
                if self._member is None
                else self._member.heartbeat(self._clock.monotonic(), offset)
            )

    def acknowledged(self, member: str, number: int) -> None:
        """Process the acknowledgement of a heartbeat."""
        with self._lock:
            if self._member is not None:
                self._member.acknowledged(member, number, self._clock.monotonic())
        self._notify()

    def undelivered(self, member: str, number: int) -> None:
        """Process a heartbeat that was definitely not written."""
        with self._lock:
            if self._member is not None:
                self._member.lost(member, number)

    def check_lease(self) -> None:
        """Check whether the lease has expired. The heartbeat sender calls this frequently."""
        with self._lock:
            member = self._member
            if (
                member is None
                or member.phase is not Phase.MEMBER
                or member.check(self._clock.monotonic())
            ):
                return
        self._notify()

    # Other workers

    def leader_url(self) -> str | None:
        """Return the URL of the leader, or None if its session has expired."""
        now = self._clock.monotonic()
        with self._lock:
            epoch = self._view.epoch
            if epoch is None:
                return None
            in_session = (
                now < metadata.at + self.timings.session_timeout
                for metadata in self._view.members.values()
                if metadata.heartbeat.url == epoch.worker_url
            )
            return epoch.worker_url if any(in_session) else None

    def urls(self) -> list[str]:
        """Return the URLs of this worker and of all other live workers, sorted."""
        now = self._clock.monotonic()
        with self._lock:
            members = self._view.members.values()
            return sorted(
                {self.url}
                | {h.heartbeat.url for h in members if now < h.at + self.timings.session_timeout}
            )

    def read_to_end(self) -> None:
        """Record that the topic has been read to its end.

        Heartbeats that are read later come from running workers.
        """
        with self._lock:
            self._has_read_to_end = True

    def lone_leader(self, *, surely: bool) -> str | None:
        """Return the URL of another worker that leads without transactions.

        If `surely` is true, return the URL only if that worker has sent a heartbeat since this
        worker started.
        """
        with self._lock:
            epoch = self._view.epoch
            if epoch is None or not epoch.alone or epoch.worker_url == self.url:
                return None
            return (
                epoch.worker_url if not surely or epoch.worker_url in self._heartbeat_urls else None
            )

    def has_other_workers(self) -> bool:
        """Return True if there are other workers whose session has not expired.

        Workers that have sent no heartbeat since this worker started are ignored.
        """
        now = self._clock.monotonic()
        with self._lock:
            urls = {
                h.heartbeat.url
                for h in self._view.members.values()
                if now < h.at + self.timings.session_timeout
            }
            return bool((urls & self._heartbeat_urls) - {self.url})

    def owner_url(self, item: Item) -> str | None:
        """Return the URL of the worker to which an item is assigned, or None."""
        with self._lock:
            return None if self._view.assignment is None else self._view.assignment.owner_url(item)

    def is_moving(self, item: Item) -> bool:
        """Return True if an item has no owner but will soon be assigned to a worker.

        Returns False for an item that is waiting for its last owner to return.
        """
        with self._lock:
            last = self._view.assignment
            if last is None or last.owner_url(item) is not None:
                return False
            return item not in last.awaited or not last.delay_ms

    def running_elsewhere(self) -> Items:
        """Return the items that other members have reported as running or stopping."""
        with self._lock:
            own_id = None if self._member is None else self._member.id
            reported_items = (
                metadata.heartbeat.assigned | metadata.heartbeat.stopping
                for member, metadata in self._view.members.items()
                if member != own_id
            )
            return frozenset().union(*reported_items)

    # Leader methods

    def history(self) -> tuple[int, int, bool]:
        """Return the highest epoch, the highest generation, and whether the history is complete.

        The history is complete if the topic contains an epoch and a complete assignment.
        """
        with self._lock:
            epoch, last = self._view.epoch, self._view.assignment
            generation = max(
                0 if epoch is None else epoch.generation, 0 if last is None else last.generation
            )
            return (
                self._view.highest_epoch_seen(),
                generation,
                epoch is not None and last is not None and last.complete,
            )

    def begin_term(self, epoch: Epoch, *, trusted: bool) -> LeaderState:
        """Return the state of a new term whose epoch has been announced."""
        with self._lock:
            return LeaderState(
                epoch, self._view, self.timings, self._clock.monotonic(), trusted=trusted
            )

    def superseded(self, leader: LeaderState) -> bool:
        with self._lock:
            return leader.superseded

    def needs_catch_up(self, leader: LeaderState) -> bool:
        with self._lock:
            return leader.needs_catch_up(self._clock.monotonic())

    def decide(
        self, leader: LeaderState, configured: Items, config_offset: int, read_up_to: float
    ) -> Decision | None:
        with self._lock:
            return leader.decide(configured, config_offset, self._clock.monotonic(), read_up_to)

    def failed(self, leader: LeaderState, decision: Decision) -> None:
        with self._lock:
            leader.failed(decision)

    def deadline(self, leader: LeaderState) -> float:
        with self._lock:
            return leader.deadline()
