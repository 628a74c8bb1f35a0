"""Leases and rounds of a group, one rule per test; the simulation covers the rest."""

from __future__ import annotations

import itertools

import pytest

from connect_py.herder.group.group_view import GroupView
from connect_py.herder.group.leader_state import Decision, LeaderState
from connect_py.herder.group.member_state import MemberState, Phase, UrlInUseError
from connect_py.herder.group.timings import Timings
from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.storage.control_records import (
    NO_ITEMS,
    Assignment,
    AssignmentVersion,
    Epoch,
    Heartbeat,
    Items,
    MemberAssignment,
)
from connect_py.testing import FakeClock

TIMINGS = Timings(
    session_timeout=10.0, heartbeat_interval=3.0, rebalance_timeout=60.0, max_delay=0.0
)
A: Items = frozenset({"a"})
URL = "http://w1/"
FIRST = AssignmentVersion()


def member(view: GroupView, now: float = 0.0) -> MemberState:
    ids = (f"m{number}" for number in itertools.count(1))
    return MemberState(URL, TIMINGS, lambda: next(ids), now)


def joined(view: GroupView) -> MemberState:
    """A member whose first hello was sent and acknowledged at 0."""
    one = member(view)
    assert one.join(view, 0.0)
    heartbeat = one.heartbeat(0.0, 5)
    assert heartbeat is not None
    one.acknowledged(heartbeat.member, heartbeat.number, 0.0)
    return one


def assignment(version: AssignmentVersion, items: Items, to: str = "m1") -> Assignment:
    return Assignment(version, version.round, 5, {to: MemberAssignment(URL, items)}, {}, 0)


def test_lease_counts_from_sending_of_last_acknowledged_hello() -> None:
    one = joined(GroupView())
    assert one.lease_until == 7.0
    heartbeat = one.heartbeat(3.0, 5)
    assert heartbeat is not None
    one.acknowledged(heartbeat.member, heartbeat.number, 6.0)
    assert one.lease_until == 10.0
    assert one.check(9.9)
    assert not one.check(10.0)


def test_acknowledgement_after_lease_end_does_not_renew_the_lease() -> None:
    view = GroupView()
    one = joined(view)
    one.apply_assignment(assignment(AssignmentVersion(1, 1), A), 1.0)
    one.set_running(A, view, 1.0)
    heartbeat = one.heartbeat(6.9, 5)
    assert heartbeat is not None
    one.acknowledged(heartbeat.member, heartbeat.number, 7.5)
    assert one.phase is Phase.ENDING
    assert one.assigned == NO_ITEMS
    one.set_running(NO_ITEMS, view, 8.0)  # everything has stopped: the member gets a new ID
    assert (one.id, one.members_to_announce()) == ("m2", ["m1"])


def test_worker_starts_nothing_before_or_after_its_lease() -> None:
    view = GroupView()
    one = member(view)
    one.join(view, 0.0)
    one.apply_assignment(assignment(AssignmentVersion(1, 1), A), 0.0)
    assert one.may_start(0.0) == NO_ITEMS
    heartbeat = one.heartbeat(0.0, 5)
    assert heartbeat is not None
    one.acknowledged(heartbeat.member, heartbeat.number, 1.0)
    assert one.may_start(1.0) == A
    assert one.may_start(7.0) == NO_ITEMS


def test_assignments_of_an_earlier_leader_or_round_are_ignored() -> None:
    one = joined(GroupView())
    assert one.apply_assignment(assignment(AssignmentVersion(5, 2), A), 1.0)
    assert not one.apply_assignment(assignment(AssignmentVersion(5, 1), NO_ITEMS), 1.0)
    assert not one.apply_assignment(assignment(AssignmentVersion(4, 9), NO_ITEMS), 1.0)
    one.apply_epoch(6)
    assert not one.apply_assignment(assignment(AssignmentVersion(5, 3), NO_ITEMS), 1.0)
    assert one.assigned == A


def test_restarted_worker_awaits_old_lease_and_refuses_url_in_use() -> None:
    view = GroupView()
    view.apply_heartbeat(Heartbeat("old", 1, URL, 1, AssignmentVersion(1, 1), 5, A), 0.0)
    one = member(view)
    assert not one.join(view, 9.9)
    assert one.join(view, 10.0)
    two = member(view)
    view.apply_heartbeat(Heartbeat("old", 2, URL, 1, AssignmentVersion(1, 1), 5, A), 11.0)
    with pytest.raises(UrlInUseError, match="advertises the URL http://w1/"):
        two.join(view, 11.5)


def test_member_that_cannot_stop_work_in_time_loses_its_lease() -> None:
    view = GroupView()
    one = joined(view)
    one.apply_assignment(assignment(AssignmentVersion(1, 1), A), 0.0)
    one.set_running(A, view, 0.0)
    one.apply_assignment(assignment(AssignmentVersion(1, 2), NO_ITEMS), 1.0)
    now = 1.0
    while (due := one.next_heartbeat(now)) < 100.0:
        now = max(now, due)
        heartbeat = one.heartbeat(now, 5)
        if heartbeat is not None:
            one.read_back(heartbeat, now)
    assert 60.0 < now < 65.0


def hello_of(
    name: str,
    version: AssignmentVersion = FIRST,
    assigned: Items = NO_ITEMS,
    stopping: Items = NO_ITEMS,
    number: int = 1,
) -> Heartbeat:
    return Heartbeat(name, number, f"http://{name}/", version.epoch, version, 5, assigned, stopping)


def led(view: GroupView) -> LeaderState:
    epoch = Epoch(1, URL, 1)
    view.apply_epoch(epoch)
    return LeaderState(epoch, view, TIMINGS, 0.0, trusted=True)


def decided(
    leader: LeaderState, view: GroupView, configured: Items, now: float, read_up_to: float = -1.0
) -> Decision:
    decision = leader.decide(configured, 5, now, read_up_to)
    assert decision is not None
    view.apply_assignment(decision.assignment)
    return decision


def test_item_moves_only_after_its_holder_said_that_it_stopped() -> None:
    view = GroupView()
    view.apply_heartbeat(hello_of("m1"), 0.0)
    leader = led(view)
    view.apply_heartbeat(hello_of("m1", AssignmentVersion(1, 1), number=2), 0.0)
    both: Items = frozenset({"a", "b"})
    decided(leader, view, NO_ITEMS, 0.0)
    given = decided(leader, view, both, 0.1)
    assert given.assignment.members["m1"].items == both
    view.apply_heartbeat(hello_of("m1", given.assignment.version, both, number=3), 0.2)
    view.apply_heartbeat(hello_of("m2"), 0.3)
    revoked = decided(leader, view, both, 0.4).assignment
    (moving,) = both - revoked.members["m1"].items
    assert revoked.members["m2"].items == NO_ITEMS
    kept = both - {moving}
    view.apply_heartbeat(hello_of("m1", revoked.version, kept, frozenset({moving}), number=4), 0.5)
    assert leader.decide(both, 5, 0.6, -1.0) is None  # it still stops
    view.apply_heartbeat(hello_of("m1", revoked.version, kept, number=5), 0.7)
    assert decided(leader, view, both, 0.8).assignment.members["m2"].items == {moving}


def test_generation_rises_when_work_is_revoked_and_not_every_round() -> None:
    """Java's workers go on with a number that rises with each change of members: ours must not be
    higher by then."""
    view = GroupView()
    view.apply_heartbeat(hello_of("m1"), 0.0)
    leader = led(view)
    first = leader.epoch.generation
    both: Items = frozenset({"a", "b"})
    seen = [
        decided(leader, view, items, at).assignment
        for at, items in ((0.0, NO_ITEMS), (0.1, A), (0.2, both))
    ]
    assert [(one.version.round, one.generation) for one in seen] == [
        (1, first),
        (2, first),
        (3, first),
    ]
    view.apply_heartbeat(hello_of("m1", seen[-1].version, both, number=2), 0.3)
    view.apply_heartbeat(hello_of("m2"), 0.4)
    revoked = decided(leader, view, both, 0.5).assignment
    assert (
        revoked.generation == first + 1
    )  # the leave record of the previous owner outranks its heartbeats
    view.apply_heartbeat(
        hello_of("m1", revoked.version, revoked.members["m1"].items, number=3), 0.6
    )
    assert decided(leader, view, both, 0.7).assignment.generation == first + 1
    # deleted items have no status
    assert decided(leader, view, A, 0.8).assignment.generation == first + 1


def test_work_of_silent_member_moves_only_after_its_lease_end() -> None:
    view = GroupView()
    view.apply_heartbeat(hello_of("m1"), 0.0)
    view.apply_heartbeat(hello_of("m2"), 0.0)
    leader = led(view)
    first = decided(leader, view, A, 0.0).assignment
    for name in ("m1", "m2"):
        view.apply_heartbeat(hello_of(name, first.version, number=2), 0.1)
    given = decided(leader, view, A, 0.2).assignment
    (holder,) = (name for name, assigned_member in given.members.items() if assigned_member.items)
    other = "m1" if holder == "m2" else "m2"
    view.apply_heartbeat(hello_of(other, given.version, number=3), 9.0)
    # Hellos of the last moment may not be read yet: the round is repeated, and gives nothing away.
    assert decided(leader, view, A, 10.2, read_up_to=10.0).assignment.members == given.members
    assert leader.needs_catch_up(10.2)
    lost = decided(leader, view, A, 10.3, read_up_to=10.2)
    assert lost.removed == (holder,)
    assert lost.lost == {"a": f"http://{holder}/"}
    assert lost.assignment.members == {other: MemberAssignment(f"http://{other}/", A)}


def test_leader_yields_to_a_higher_epoch_of_any_member() -> None:
    view = GroupView()
    leader = led(view)
    view.apply_heartbeat(Heartbeat("m1", 1, URL, 9, AssignmentVersion(9, 4), 5, A), 0.0)
    assert leader.superseded
    assert leader.decide(A, 5, 0.0, 0.0) is None


def test_repeated_report_of_same_work_notifies_no_listener_during_outage() -> None:
    clock = FakeClock()
    changes: list[float] = []
    group = WorkerGroup(
        URL, TIMINGS, clock, lambda: 5, lambda: changes.append(clock.monotonic()), lambda _: None
    )
    assert group.join()
    heartbeat = group.heartbeat()
    assert heartbeat is not None
    group.acknowledged(heartbeat.member, heartbeat.number)
    group.set_running(A)
    clock.sleep(TIMINGS.session_timeout + 1.0)
    assert not group.working()
    group.set_running(NO_ITEMS)  # the member gets a new ID
    changes.clear()
    for _ in range(10):
        group.set_running(NO_ITEMS)
    assert changes == []
