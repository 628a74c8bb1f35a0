"""`GroupView`: the group's state as read from the control topic by one worker."""

from __future__ import annotations

from dataclasses import dataclass

from connect_py.storage.control_records import Assignment, Epoch, Heartbeat


@dataclass(slots=True)
class MemberMetadata:
    """Latest heartbeat from a member, and the time at which it was read."""

    heartbeat: Heartbeat
    at: float  # time of reading, in monotonic seconds; never earlier than the send time
    since: int  # arrival number of the member; members that joined later have higher numbers


class GroupView:
    """Applies the records in the control topic in order. Applying a record twice has no effect.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self.members: dict[str, MemberMetadata] = {}
        # IDs of members that have left; IDs are never reused
        self.departed_members: set[str] = set()
        self.epoch: Epoch | None = None  # highest epoch read so far
        self.assignment: Assignment | None = None  # latest assignment read so far
        self.version = 0  # increases with every change
        self._count = 0

    def apply_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        member = self.members.get(heartbeat.member)
        if heartbeat.member in self.departed_members or (
            member is not None and heartbeat.number <= member.heartbeat.number
        ):
            return
        self.version += 1
        if member is None:
            self._count += 1
            self.members[heartbeat.member] = MemberMetadata(heartbeat, now, self._count)
        else:
            member.heartbeat, member.at = heartbeat, now

    def remove_member(self, member: str) -> None:
        """Remove a member that has stopped all of its items, or whose session has expired."""
        self.version += 1
        self.departed_members.add(member)
        self.members.pop(member, None)

    def topic_lost(self, now: float) -> None:
        """Extend all sessions after the topic has been recreated.

        Heartbeats that were lost with the topic may have extended any member's lease.
        """
        self.version += 1
        for metadata in self.members.values():
            metadata.at = now

    def apply_epoch(self, epoch: Epoch) -> None:
        if self.epoch is None or epoch.number > self.epoch.number:
            self.version += 1
            self.epoch = epoch

    def apply_assignment(self, assignment: Assignment) -> bool:
        """Apply an assignment. Return False if it is outdated or from an earlier leader."""
        if assignment.version.epoch < self.highest_epoch():
            return False
        if self.assignment is not None and assignment.version <= self.assignment.version:
            return False
        self.version += 1
        self.assignment = assignment
        return True

    def highest_epoch(self) -> int:
        """Return the highest epoch that a leader has announced, or 0."""
        return max(
            0 if self.epoch is None else self.epoch.number,
            0 if self.assignment is None else self.assignment.version.epoch,
        )

    def highest_epoch_seen(self) -> int:
        """Return the highest epoch that any member has reported or a leader has announced.

        After the topic has been recreated, heartbeats can report epochs that it does not contain.
        """
        return max(
            [
                self.highest_epoch(),
                *(metadata.heartbeat.epoch for metadata in self.members.values()),
            ]
        )
