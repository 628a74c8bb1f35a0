"""`MemberState`: one worker's membership in the group, with its lease, items, and heartbeats.

An item is a connector or a task. A lease is the time for which a member may run its items without
another acknowledged heartbeat. The state performs no I/O and reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from connect_py.herder.group.group_view import GroupView
from connect_py.herder.group.timings import Timings
from connect_py.storage.control_records import (
    NO_ITEMS,
    Assignment,
    AssignmentVersion,
    Heartbeat,
    Items,
)

# number of session timeouts after which a member that is missing from the assignment rejoins with
# a new ID, because the leader may have removed it
REJOIN_AFTER_SESSIONS = 3
# the minimum delay before a change is reported is the heartbeat interval divided by this number
CHANGE_SPEEDUP = 30


class Phase(Enum):
    """Phase of a membership."""

    WAITING = auto()  # waits for the session of an earlier member with the same URL to expire
    MEMBER = auto()
    ENDING = auto()  # the lease has expired: stops all items, and then rejoins with a new ID
    LEAVING = auto()  # the worker is shutting down


class UrlInUseError(Exception):
    """Another running worker has the same URL as this worker."""


class MemberState:
    """Decides when to send a heartbeat, which items may run, and when all items must stop.

    The caller reports events (`apply_assignment`, `acknowledged`, `set_running`) and queries the
    result (`heartbeat`, `members_to_announce`, `assigned`, `check`). Times are in seconds on this
    worker's monotonic clock. Not thread-safe.
    """

    def __init__(self, url: str, timings: Timings, new_id: Callable[[], str], now: float) -> None:
        self._url = url
        self._timings = timings
        self._new_id = new_id
        self._started_at = now
        self._former_ids: set[str] = set()  # earlier member IDs of this process
        # member IDs whose departure must be announced, because all of their items have stopped
        self._ids_to_announce: list[str] = []
        self.phase = Phase.WAITING
        self.epoch = 0
        self.running: Items = NO_ITEMS  # items that may be running on this worker
        self._start_new_id(now)

    def _start_new_id(self, now: float) -> None:
        self.id = self._new_id()
        # time since which no assignment has contained this member, or None if the last one does
        self._omitted_since: float | None = now
        self._number = 0
        # send time of each unacknowledged heartbeat, by heartbeat number
        self._sent: dict[int, float] = {}
        # send time of each heartbeat that has not been read back, by heartbeat number
        self._unread: dict[int, float] = {}
        self._sent_at: float | None = None  # send time of the last heartbeat
        self._has_changes = True
        self._stopping_since: float | None = None
        self._let_lease_expire = False
        self.applied = AssignmentVersion()
        self.generation = 0
        self.config_offset = -1  # config offset on which the assignment is based
        self.assigned: Items = NO_ITEMS
        self.lease_until: float | None = None  # None before the first acknowledgement

    # Joining

    def join(self, view: GroupView, now: float) -> bool:
        """Join the group. Return True if this worker is now a member.

        It cannot join while an earlier member with the same URL may still have a lease.

        Raises:
            UrlInUseError: A worker with the same URL has sent a heartbeat more than one session
                timeout after this worker started.
        """
        if self.phase is not Phase.WAITING:
            return True
        for metadata in view.members.values():
            if (
                metadata.heartbeat.url == self._url
                and now < metadata.at + self._timings.session_timeout
            ):
                if metadata.at > self._started_at + self._timings.session_timeout:
                    raise UrlInUseError(
                        f"another running worker in the group advertises the URL {self._url}"
                    )
                return False
        self.phase = Phase.MEMBER
        self._take_current(view, now)
        return True

    def _take_current(self, view: GroupView, now: float) -> None:
        self.epoch = max(self.epoch, view.highest_epoch())
        if view.assignment is not None:
            self.apply_assignment(view.assignment, now)

    # Heartbeats and the lease

    def heartbeat(self, now: float, config_offset: int) -> Heartbeat | None:
        """Return the heartbeat to send now, or None if none is due. Its send time is `now`."""
        if self.phase is Phase.MEMBER and self._is_omitted_too_long(now):
            self._end()
        if now < self.next_heartbeat(now):
            return None
        self._number += 1
        self._sent[self._number] = self._sent_at = now
        self._unread[self._number] = now
        self._has_changes = False
        return Heartbeat(
            self.id,
            self._number,
            self._url,
            self.epoch,
            self.applied,
            config_offset,
            self.assigned,
            self.running - self.assigned,
        )

    def next_heartbeat(self, now: float) -> float:
        """Return the time at which the next heartbeat is due, or infinity."""
        if (
            self.phase not in (Phase.MEMBER, Phase.LEAVING)
            or self._must_let_lease_expire(now)
            or self._is_expired(now)
        ):
            return float("inf")
        if self._sent_at is None:
            return now
        wait = self._timings.heartbeat_interval / (CHANGE_SPEEDUP if self._has_changes else 1)
        return self._sent_at + wait

    def _is_omitted_too_long(self, now: float) -> bool:
        """Return True if this member must rejoin because no recent assignment contains it."""
        return (
            self._omitted_since is not None
            and now - self._omitted_since > REJOIN_AFTER_SESSIONS * self._timings.session_timeout
        )

    def _must_let_lease_expire(self, now: float) -> bool:
        """Return True if this member cannot apply its assignment and must let its lease expire."""
        if (
            self._stopping_since is not None
            and now - self._stopping_since > self._timings.rebalance_timeout
        ):
            self._let_lease_expire = True  # a revoked item has not stopped in time
        if self._unread and now - min(self._unread.values()) > self._timings.rebalance_timeout:
            # heartbeats can be written, but the reader of the topic makes no progress
            self._let_lease_expire = True
        return self._let_lease_expire and self.lease_until is not None

    def acknowledged(self, member: str, number: int, now: float) -> None:
        """Extend the lease, measured from the time at which the heartbeat was sent."""
        sent = self._sent.pop(number, None) if member == self.id else None
        if (
            sent is None
            or self.phase not in (Phase.MEMBER, Phase.LEAVING)
            or self._end_if_expired(now)
        ):
            return
        self._sent = {later: at for later, at in self._sent.items() if later > number}
        until = sent + self._timings.lease
        if self.lease_until is None:
            if now < until:
                self.lease_until = until
                self._let_lease_expire = False
                self._unread = {later: at for later, at in self._unread.items() if later >= number}
        else:
            self.lease_until = max(self.lease_until, until)

    def lost(self, member: str, number: int) -> None:
        """Discard a heartbeat that was definitely not written."""
        if member == self.id:
            self._sent.pop(number, None)
            self._unread.pop(number, None)

    def read_back(self, heartbeat: Heartbeat, now: float) -> None:
        """Process a heartbeat that was read from the topic.

        If this member sent the heartbeat, it has now read all earlier records as well.
        """
        if heartbeat.member == self.id:
            self.acknowledged(heartbeat.member, heartbeat.number, now)
            self._unread = {
                later: at for later, at in self._unread.items() if later > heartbeat.number
            }

    def deadline(self) -> float | None:
        """Return the time by which all items on this worker must have been terminated.

        Returns None if there is no lease. The deadline must be met even if this process hangs.
        """
        return None if self.lease_until is None else self.lease_until + self._timings.grace

    def check(self, now: float) -> bool:
        """Return True if items may run.

        Returns False if the lease has expired. All items must then be stopped immediately.
        """
        return not self._end_if_expired(now) and self.phase is not Phase.ENDING

    def _is_expired(self, now: float) -> bool:
        return self.lease_until is not None and now >= self.lease_until

    def _end_if_expired(self, now: float) -> bool:
        if self._is_expired(now) and self.phase is Phase.MEMBER:
            self._end()
        return self._is_expired(now)

    def _end(self) -> None:
        self.phase = Phase.ENDING
        self.assigned = NO_ITEMS

    # Items

    def apply_assignment(self, assignment: Assignment, now: float) -> bool:
        """Apply an assignment. Return False if it is outdated or this member cannot apply it."""
        if self.is_outdated(assignment.version):
            return False
        self.epoch = assignment.version.epoch
        if self.phase is Phase.WAITING:
            return False
        if self.phase is not Phase.LEAVING and not self.check(now):
            return False
        assigned_member = assignment.members.get(self.id)
        if assigned_member is not None:
            self._omitted_since = None
        elif self._omitted_since is None:
            self._omitted_since = now
        items = (
            NO_ITEMS
            if assigned_member is None or self.phase is Phase.LEAVING
            else assigned_member.items
        )
        self.applied = assignment.version
        self.generation = assignment.generation
        self.config_offset = assignment.config_offset
        self.assigned = items
        self._has_changes = True
        self._track_stopping(now)
        return True

    def is_outdated(self, version: AssignmentVersion) -> bool:
        """Return True if there is a newer epoch, or this version has already been applied."""
        return version.epoch < self.epoch or version <= self.applied

    def apply_epoch(self, number: int) -> None:
        """Process the epoch of a new leader. Assignments from earlier leaders are then ignored."""
        self.epoch = max(self.epoch, number)

    def set_running(self, items: Items, view: GroupView, now: float) -> None:
        """Set the items that have been started and may still be running."""
        if items != self.running:
            self.running = items
            self._has_changes = True
        self._track_stopping(now)
        if self.phase is Phase.ENDING and not items:
            self._ids_to_announce.append(self.id)
            self._former_ids.add(self.id)
            self._start_new_id(now)
            self.phase = Phase.MEMBER
            self._take_current(view, now)
        elif self.phase is Phase.LEAVING and not items and self.id not in self._former_ids:
            self._ids_to_announce.append(self.id)
            self._former_ids.add(self.id)

    def _track_stopping(self, now: float) -> None:
        if not self.running - self.assigned:
            self._stopping_since = None
        elif self._stopping_since is None:
            self._stopping_since = now

    def removed(self, member: str) -> None:
        """End the membership if a leader has removed this member."""
        if member == self.id and self.phase is Phase.MEMBER:
            self._end()

    def leave(self, view: GroupView, now: float) -> None:
        """Leave the group. The departure is announced after all items have stopped."""
        joined = self.phase is Phase.MEMBER
        self.phase = Phase.LEAVING
        self.assigned = NO_ITEMS
        if not joined:
            self._former_ids.add(self.id)  # not a member, so there is no departure to announce
        self.set_running(self.running, view, now)

    def members_to_announce(self) -> list[str]:
        """Remove and return the member IDs to announce as departed before the next heartbeat."""
        members, self._ids_to_announce = self._ids_to_announce, []
        return members

    def may_start(self, now: float) -> Items:
        """Return the items that may be started now."""
        return (
            self.assigned if self.lease_until is not None and now < self.lease_until else NO_ITEMS
        )
