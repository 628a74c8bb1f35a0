"""`GroupView`: what one worker has read from the control topic so far."""

from __future__ import annotations

from dataclasses import dataclass

from connect_py.storage.control_records import Assignment, Epoch, Hello


@dataclass(slots=True)
class Heard:
    """A member, its latest hello, and when that was read."""

    hello: Hello
    at: float  # monotonic seconds; never before the hello was sent
    since: int  # members that came later have a higher number


class GroupView:
    """Takes records in the order of the topic; a record read twice changes nothing. Not safe for
    several threads."""

    def __init__(self) -> None:
        self.members: dict[str, Heard] = {}
        self.left: set[str] = set()  # lives that are over; they never come back
        self.epoch: Epoch | None = None  # the highest
        self.assignment: Assignment | None = None  # the latest
        self.version = 0  # rises with every change
        self._count = 0

    def take_hello(self, hello: Hello, now: float) -> None:
        known = self.members.get(hello.member)
        if hello.member in self.left or (known is not None and hello.number <= known.hello.number):
            return
        self.version += 1
        if known is None:
            self._count += 1
            self.members[hello.member] = Heard(hello, now, self._count)
        else:
            known.hello, known.at = hello, now

    def take_left(self, member: str) -> None:
        """A member said that it stopped everything and left, or a leader saw its lease end."""
        self.version += 1
        self.left.add(member)
        self.members.pop(member, None)

    def topic_lost(self, now: float) -> None:
        """The topic was made anew: hellos that were never read may have extended any lease until
        now."""
        self.version += 1
        for heard in self.members.values():
            heard.at = now

    def take_epoch(self, epoch: Epoch) -> None:
        if self.epoch is None or epoch.number > self.epoch.number:
            self.version += 1
            self.epoch = epoch

    def take_assignment(self, assignment: Assignment) -> bool:
        """Whether it counts: a leader of an earlier epoch, or an earlier round, says nothing any
        more."""
        if assignment.turn.epoch < self.highest_epoch():
            return False
        if self.assignment is not None and assignment.turn <= self.assignment.turn:
            return False
        self.version += 1
        self.assignment = assignment
        return True

    def highest_epoch(self) -> int:
        """The highest epoch that a leader announced, or 0."""
        return max(
            0 if self.epoch is None else self.epoch.number,
            0 if self.assignment is None else self.assignment.turn.epoch,
        )

    def highest_epoch_heard(self) -> int:
        """The highest that anybody has heard of: members remember what a topic that was made anew
        has lost."""
        return max([self.highest_epoch(), *(heard.hello.epoch for heard in self.members.values())])
