"""State of one leader term: live members, the items that each may run, and the next assignment.

An item is a connector or a task. A term, identified by an epoch number, is the time during which
one worker leads the group. During a term, the leader writes a series of assignments, which are
called rounds. The state performs no I/O and reads no clock: `leadership.py` updates it and writes
its decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from connect_py.herder.group.assignment import MemberLoad, PendingItems, balance_items
from connect_py.herder.group.group_view import GroupView
from connect_py.herder.group.timings import Timings
from connect_py.storage.control_records import (
    NO_ITEMS,
    Assignment,
    AssignmentVersion,
    Epoch,
    Item,
    Items,
    MemberAssignment,
)

UNKNOWN = "unknown"  # placeholder for members that have no record in the control topic
REFRESH_SECONDS = 12 * 3600.0  # shorter than the retention of any control topic
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Decision:
    """An assignment to write and the members to remove, in one transaction."""

    assignment: Assignment
    # members whose session has definitely expired
    removed: tuple[str, ...]
    # items without an owner, with the URL of the last worker that ran each of them
    lost: Mapping[Item, str]


class LeaderState:
    """Decides on the assignments during one term. Not thread-safe.

    Create the state only after the previous leader has been fenced and the control topic has been
    read to its end.

    Safety rests on one rule: an item is assigned to a member only if no other member can be running
    it. A member can be running the items in its last heartbeat, the items that were assigned to it
    since, and, until it has applied an assignment from this term, every item that an earlier leader
    may have assigned to it.
    """

    def __init__(
        self, epoch: Epoch, view: GroupView, timings: Timings, now: float, *, trusted: bool
    ) -> None:
        """Start a term.

        Args:
            epoch: The epoch of this term.
            view: The group as read from the control topic. It changes during the term.
            timings: Timeouts of the group.
            now: Current time in monotonic seconds.
            trusted: True if every member that may have a lease has a record in the topic.
        """
        self.epoch = epoch
        self._view = view
        self._timings = timings
        self._round = 0
        self._generation = epoch.generation
        previous = view.assignment

        # Members in the previous assignment (or UNKNOWN) that have sent no heartbeat, with the time
        # at which the leader started to wait for one.
        self._silent_since: dict[str, float] = {}
        if not trusted:
            self._silent_since[UNKNOWN] = now
        if previous is not None:
            for member in previous.members:
                if member not in view.members and member not in view.departed_members:
                    self._silent_since[member] = now
        # Members that may still be running items that an earlier leader assigned to them.
        self._inherited_members = {*view.members, *self._silent_since}
        self._urls = {member: metadata.heartbeat.url for member, metadata in view.members.items()}
        # Expired members, until a decision that removes them has been written.
        self._members_to_remove: list[str] = []
        # Departed members whose items have not been collected yet, with their URLs.
        self._departed_members: dict[str, str] = {}
        # Members that still have items to stop, with the time at which the stop was requested.
        self._revoking_since: dict[str, float] = {}

        # Items that are assigned to each member and not lost.
        self._assigned_items = self._inherit_assignments(previous)
        # Items that each member will have once the group is balanced, including items that another
        # member must stop first.
        self._target_items = dict(self._assigned_items)
        # Rounds that at least one member has not applied yet.
        self._unconfirmed_rounds: dict[int, Mapping[str, MemberAssignment]] = {}
        # Owner of each item after the last round in this term.
        self._owners: dict[Item, str] = {}
        self._last_content: (
            tuple[Mapping[str, MemberAssignment], frozenset[tuple[Item, str]]] | None
        ) = None
        self._last_written_at = now
        self._pending = PendingItems()
        if previous is not None:
            self._pending = PendingItems(
                dict(previous.awaited), now + timings.max_delay if previous.awaited else None
            )
            for member, assigned_member in previous.members.items():
                self._urls.setdefault(member, assigned_member.url)
                if member in view.departed_members:
                    self._departed_members[member] = assigned_member.url

        # Version of the view, and config offset, at the time of the last decision.
        self._last_versions = (-1, -1)
        self._next_decision_at = now
        self._behind_since: float | None = None

    def _inherit_assignments(self, previous: Assignment | None) -> dict[str, Items]:
        """Return the items that earlier leaders assigned to each member.

        If a member reports a later assignment than `previous`, its report is used. If `previous` is
        None, only the reports are used. If two members claim an item from the same version, it
        is assigned to neither. If they claim it from different versions, it is assigned to the
        member with the later version.
        """
        previous_version = AssignmentVersion() if previous is None else previous.version
        previous_members = {} if previous is None else previous.members
        later_reports = {
            member: metadata.heartbeat
            for member, metadata in self._view.members.items()
            if metadata.heartbeat.applied > previous_version
            or (previous is None and metadata.heartbeat.assigned)
        }
        claims: list[tuple[AssignmentVersion, str, Items]] = [
            (heartbeat.applied, member, heartbeat.assigned)
            for member, heartbeat in later_reports.items()
        ]
        claims += [
            (previous_version, member, assigned_member.items)
            for member, assigned_member in previous_members.items()
            if member not in later_reports
        ]
        assigned_items: dict[str, Items] = dict.fromkeys(self._view.members, NO_ITEMS)
        claimed_in_later_version: set[Item] = set()
        for version in sorted({version for version, _, _ in claims}, reverse=True):
            claims_of_version = [(member, items) for at, member, items in claims if at == version]
            claimants = Counter(item for _, items in claims_of_version for item in items)
            for member, items in claims_of_version:
                assigned_items[member] = frozenset(
                    item
                    for item in items
                    if claimants[item] == 1 and item not in claimed_in_later_version
                )
            claimed_in_later_version.update(claimants)
        return assigned_items

    # Queries

    @property
    def superseded(self) -> bool:
        """Return True if a later leader has been announced or reported, which ends this term."""
        return self._view.highest_epoch_seen() > self.epoch.number

    def needs_catch_up(self, now: float) -> bool:
        """Return True if a session may have expired.

        To verify this, the caller must read the control topic to its end.
        """
        return now >= self._earliest_expiry()

    def deadline(self) -> float:
        """Return the time at which a decision may be due even if no record arrives."""
        return min(self._next_decision_at, self._earliest_expiry())

    def _earliest_expiry(self) -> float:
        last_heartbeats = [metadata.at for metadata in self._view.members.values()]
        oldest = min([*last_heartbeats, *self._silent_since.values()], default=_NEVER)
        return oldest + self._timings.session_timeout

    def may_run(self, member: str) -> Items | None:
        """Return the items that a member can be running, or None if it can be running any item.

        The result includes the items in assignments that have been written but not applied yet.
        """
        metadata = self._view.members.get(member)
        if metadata is not None and metadata.heartbeat.applied.epoch == self.epoch.number:
            items: set[Item] = {*metadata.heartbeat.assigned, *metadata.heartbeat.stopping}
            applied_round = metadata.heartbeat.applied.round
        elif self.may_follow_earlier_leader(member) or (
            metadata is not None and metadata.heartbeat.assigned | metadata.heartbeat.stopping
        ):
            return None  # also for members whose first heartbeat arrived after the term started
        else:
            items, applied_round = set(), 0
        for round_, assignments in self._unconfirmed_rounds.items():
            if round_ > applied_round and member in assignments:
                items |= assignments[member].items
        return frozenset(items)

    def may_follow_earlier_leader(self, member: str) -> bool:
        """Return True if a member may still be running items that an earlier leader assigned to it.

        This is no longer the case once the member has applied an assignment from this term or its
        session has expired.
        """
        return member in self._inherited_members

    # Decisions

    def decide(
        self, configured: Items, config_offset: int, now: float, read_up_to: float
    ) -> Decision | None:
        """Return the next assignment if one is due, otherwise None.

        Args:
            configured: All connectors and tasks, as read from the config topic by this leader.
            config_offset: Offset up to which this leader has read the config topic.
            now: Current time in monotonic seconds.
            read_up_to: Time up to which the control topic has been read, in monotonic seconds.
        """
        versions = (self._view.version, config_offset)
        is_due = now >= self._next_decision_at or read_up_to >= self._earliest_expiry()
        if self.superseded or (versions == self._last_versions and not is_due):
            return None
        if self._is_waiting_for_configuration(config_offset, now):
            return None
        self._last_versions, self._next_decision_at = versions, _NEVER

        self._remove_expired_members(read_up_to)
        self._drop_confirmed_rounds()
        self._track_revocations(now)
        eligible_members = self._eligible_members(now)
        lost_items = self._collect_lost_items(eligible_members)
        self._balance(configured, eligible_members, lost_items, now)

        assignments = self._assignable_items()
        awaited_items = {**self._pending.awaited, **self._items_awaiting_revocation(assignments)}
        content = (assignments, frozenset(awaited_items.items()))
        if content == self._last_content and not self._members_to_remove:
            refresh_at = self._refresh_time()
            self._decide_again_at(max(refresh_at, now))
            if now < refresh_at:
                return None
        self._last_content, self._last_written_at = content, now
        self._update_generation(configured, assignments)
        assignment = self._next_round(config_offset, assignments, awaited_items, now)
        unowned_items = {**lost_items, **self._pending.awaited}
        members_to_remove, self._members_to_remove = tuple(self._members_to_remove), []
        return Decision(
            assignment,
            members_to_remove,
            {item: url for item, url in unowned_items.items() if item in configured},
        )

    def failed(self, decision: Decision) -> None:
        """Record that a decision may not have been written. A later round repeats it."""
        self._last_content = None
        self._members_to_remove = [*decision.removed, *self._members_to_remove]
        self._last_versions = (-1, -1)

    def _decide_again_at(self, time: float) -> None:
        self._next_decision_at = min(self._next_decision_at, time)

    def _balance(
        self,
        configured: Items,
        eligible_members: set[str],
        lost_items: Mapping[Item, str],
        now: float,
    ) -> None:
        """Compute the target items of all members that are eligible or retain their items."""
        loads = {
            member: MemberLoad(
                self._urls[member],
                self._target_items.get(member, NO_ITEMS),
                frozen=member not in eligible_members,
            )
            for member in (*self._view.members, *self._silent_since)
            if member in eligible_members or self._retains_items(member)
        }
        balance = balance_items(
            configured, loads, lost_items, self._pending, now, self._timings.max_delay
        )
        self._pending, self._target_items = balance.pending, dict(balance.targets)
        if balance.pending.until is not None:
            self._decide_again_at(balance.pending.until)

    def _next_round(
        self,
        config_offset: int,
        assignments: Mapping[str, MemberAssignment],
        awaited_items: Mapping[Item, str],
        now: float,
    ) -> Assignment:
        """Start the next round in this term and return its assignment."""
        self._round += 1
        self._unconfirmed_rounds[self._round] = assignments
        items_of_silent_members = {
            member: items
            for member, items in self._assigned_items.items()
            if member in self._silent_since
        }
        self._assigned_items = items_of_silent_members | {
            member: assigned_member.items for member, assigned_member in assignments.items()
        }
        until = self._pending.until
        return Assignment(
            AssignmentVersion(self.epoch.number, self._round),
            self._generation,
            config_offset,
            assignments,
            awaited_items,
            delay_ms=0 if until is None else max(0, round((until - now) * 1000)),
            complete=UNKNOWN not in self._silent_since,
        )

    def _update_generation(
        self, configured: Items, assignments: Mapping[str, MemberAssignment]
    ) -> None:
        """Start a new generation if a member has lost an item that still exists.

        The generation orders the statuses of an item: the UNASSIGNED status with the new generation
        must take precedence over the last status of the previous owner. In all other cases, the
        generation does not increase, because Java workers that take over the group continue with
        their own generation, and their statuses are ignored if our generation is higher.
        """
        owners = {
            item: member
            for member, assigned_member in assignments.items()
            for item in assigned_member.items
        }
        if any(
            item in configured and owners.get(item) != member
            for item, member in self._owners.items()
        ):
            self._generation += 1
        self._owners = owners

    def _refresh_time(self) -> float:
        """Return the time at which the last round must be written again even if it is unchanged.

        A live member that has not applied the round within a session timeout may have missed it.
        In addition, the control topic's retention deletes old records.
        """
        version = AssignmentVersion(self.epoch.number, self._round)
        applied_by_all = all(
            metadata.heartbeat.applied >= version for metadata in self._view.members.values()
        )
        return self._last_written_at + (
            REFRESH_SECONDS if applied_by_all else self._timings.session_timeout
        )

    def _is_waiting_for_configuration(self, config_offset: int, now: float) -> bool:
        """Return True if a member has read the config topic further than this leader.

        The leader waits for at most one heartbeat interval. The next decision is scheduled for the
        end of this wait.
        """
        newest = max(
            (metadata.heartbeat.config_offset for metadata in self._view.members.values()),
            default=-1,
        )
        if newest <= config_offset:
            self._behind_since = None
            return False
        if self._behind_since is None:
            self._behind_since = now
        if now - self._behind_since >= self._timings.heartbeat_interval:
            return False  # the records that the member read no longer exist
        self._next_decision_at = self._behind_since + self._timings.heartbeat_interval
        return True

    # Members

    def _remove_expired_members(self, read_up_to: float) -> None:
        """Remove members whose session has definitely expired.

        The control topic has been read up to the time `read_up_to`. It contains no heartbeats from
        these members during the full session timeout before that time.
        """
        session = self._timings.session_timeout
        for member, metadata in list(self._view.members.items()):
            if metadata.at + session <= read_up_to:
                url = self._urls.setdefault(member, metadata.heartbeat.url)
                self._departed_members[member] = url
                self._view.remove_member(member)
                self._members_to_remove.append(member)
        for member, since in list(self._silent_since.items()):
            if since + session <= read_up_to:
                del self._silent_since[member]
                self._inherited_members.discard(member)
                if member == UNKNOWN:
                    self._last_content = None  # write the assignment again and mark it as complete
                else:
                    self._departed_members[member] = self._urls[member]
                    self._members_to_remove.append(member)
        for member, metadata in self._view.members.items():
            self._urls.setdefault(member, metadata.heartbeat.url)
            self._silent_since.pop(member, None)
        for member in self._assigned_items:
            if member in self._view.departed_members:
                self._departed_members.setdefault(member, self._urls[member])

    def _track_revocations(self, now: float) -> None:
        """Record when each member began to stop revoked items, and schedule a timeout for it."""
        self._revoking_since = {
            member: self._revoking_since.get(member, now)
            for member in self._view.members
            if not self._has_stopped_revoked(member)
        }
        for since in self._revoking_since.values():
            if now - since <= self._timings.rebalance_timeout:
                self._decide_again_at(since + self._timings.rebalance_timeout + 0.001)

    def _eligible_members(self, now: float) -> set[str]:
        """Return the members that may receive items.

        If several members have the same URL, only the oldest is eligible. If a silent member has
        that URL, none of them is eligible. A member that takes longer than the rebalance timeout to
        stop revoked items is not eligible.
        """
        oldest_by_url: dict[str, str] = {}
        for member in sorted(
            self._view.members, key=lambda member: self._view.members[member].since
        ):
            oldest_by_url.setdefault(self._urls[member], member)
        silent_urls = {self._urls[member] for member in self._silent_since if member != UNKNOWN}
        return {
            member
            for url, member in oldest_by_url.items()
            if url not in silent_urls
            and now - self._revoking_since.get(member, now) <= self._timings.rebalance_timeout
        }

    def _has_stopped_revoked(self, member: str) -> bool:
        """Return True if a member cannot be running any items except its assigned items."""
        may_run = self.may_run(member)
        return may_run is not None and may_run <= self._assigned_items.get(member, NO_ITEMS)

    def _retains_items(self, member: str) -> bool:
        """Return True if an ineligible member retains its items because it may still be running."""
        return member != UNKNOWN and member not in self._revoking_since

    def _drop_confirmed_rounds(self) -> None:
        """Drop the rounds that every member has applied."""
        versions = [metadata.heartbeat.applied for metadata in self._view.members.values()]
        confirmed_round = min(
            (version.round if version.epoch == self.epoch.number else 0 for version in versions),
            default=self._round,
        )
        for round_ in list(self._unconfirmed_rounds):
            if round_ <= confirmed_round:
                del self._unconfirmed_rounds[round_]

    # Items

    def _collect_lost_items(self, eligible_members: set[str]) -> dict[Item, str]:
        """Remove the items of departed and slow members from their assignments.

        Returns these items with the URL of the last worker that ran each of them.
        """
        former_owners = dict(self._departed_members)
        self._departed_members.clear()
        for member in self._view.members:
            if member not in eligible_members and not self._retains_items(member):
                former_owners[member] = self._urls[member]
        lost_items: dict[Item, str] = {}
        for member, url in former_owners.items():
            assigned_items = self._assigned_items.pop(member, NO_ITEMS)
            target_items = self._target_items.pop(member, NO_ITEMS)
            lost_items.update(dict.fromkeys(assigned_items | target_items, url))
        return lost_items

    def _assignable_items(self) -> Mapping[str, MemberAssignment]:
        """Return the target items of each member that can be assigned now.

        An item is not assigned to a member while another member may be running it.
        """
        possible_items = {
            member: self.may_run(member) for member in (*self._view.members, *self._silent_since)
        }
        unrestricted_members = {member for member, items in possible_items.items() if items is None}
        possible_runners: dict[Item, set[str]] = {}
        for member, items in possible_items.items():
            for item in items or ():
                possible_runners.setdefault(item, set()).add(member)
        assignments = {}
        for member, metadata in self._view.members.items():
            assigned_items = self._assigned_items.get(member, NO_ITEMS)
            others_may_run_anything = bool(unrestricted_members - {member})
            assignable_items = frozenset(
                item
                for item in self._target_items.get(member, NO_ITEMS)
                if item in assigned_items
                or not (others_may_run_anything or possible_runners.get(item, set()) - {member})
            )
            assignments[member] = MemberAssignment(metadata.heartbeat.url, assignable_items)
        return assignments

    def _items_awaiting_revocation(
        self, assignments: Mapping[str, MemberAssignment]
    ) -> dict[Item, str]:
        """Return the target items that another member must stop first.

        Each item is mapped to the URL of its next worker. The items are part of the written
        assignment, so the next leader can read them.
        """
        return {
            item: assignments[member].url
            for member, items in self._target_items.items()
            if member in assignments
            for item in items - assignments[member].items
        }
