"""The division of work as a pure function: the properties that every group may rely on."""

from __future__ import annotations

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from connect_py.herder.group.assignment import Memory, Seat, divide
from connect_py.model import ConnectorTaskId
from connect_py.storage.control_records import Item, Items

CONNECTORS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 6), max_size=8)
MEMBERS = st.integers(1, 5)
NOW = 100.0


def work(connectors: dict[str, int]) -> Items:
    tasks = {
        ConnectorTaskId(name, number)
        for name, count in connectors.items()
        for number in range(count)
    }
    return frozenset((*connectors, *tasks))


def fresh(count: int, first: int = 0) -> dict[str, Seat]:
    return {f"m{number}": Seat(f"http://w{number}") for number in range(first, first + count)}


def settled(configured: Items, seats: dict[str, Seat]) -> dict[str, Seat]:
    """Seats after a division without delay took effect."""
    targets = divide(configured, seats, {}, Memory(), NOW, 0.0).targets
    return {member: Seat(seat.url, targets[member]) for member, seat in seats.items()}


def moved(before: dict[str, Seat], after: dict[str, Seat]) -> set[Item]:
    return {
        item
        for member, seat in after.items()
        for item in seat.holds - before.get(member, Seat("")).holds
    }


def check_whole_and_balanced(configured: Items, seats: dict[str, Seat]) -> None:
    held = [item for seat in seats.values() for item in seat.holds]
    assert len(held) == len(set(held))
    assert set(held) == set(configured)
    for kind in (str, ConnectorTaskId):
        loads = [sum(isinstance(item, kind) for item in seat.holds) for seat in seats.values()]
        assert max(loads) - min(loads) <= 1


@given(CONNECTORS, MEMBERS)
def test_everything_configured_is_assigned_once_and_evenly(
    connectors: dict[str, int], members: int
) -> None:  # A2, A5
    check_whole_and_balanced(work(connectors), settled(work(connectors), fresh(members)))


@given(CONNECTORS, MEMBERS, st.randoms())
def test_assignment_ignores_map_order_and_is_a_fixed_point(  # A3, A4
    connectors: dict[str, int], members: int, random: object
) -> None:
    seats = settled(work(connectors), fresh(members))
    assert settled(work(connectors), seats) == seats
    names = list(seats)
    random.shuffle(names)  # type: ignore[attr-defined]  # a random.Random
    assert settled(work(connectors), {name: seats[name] for name in names}) == seats


@given(CONNECTORS, MEMBERS)
def test_joining_member_receives_at_most_its_share_of_work(
    connectors: dict[str, int], members: int
) -> None:
    before = settled(work(connectors), fresh(members))  # A6
    after = settled(work(connectors), {**before, **fresh(1, members)})
    check_whole_and_balanced(work(connectors), after)
    joined = after[f"m{members}"].holds
    assert moved(before, after) == joined
    for kind in (str, ConnectorTaskId):
        total = sum(isinstance(item, kind) for item in work(connectors))
        assert sum(isinstance(item, kind) for item in joined) <= ceil(total / (members + 1))


@given(CONNECTORS, st.integers(2, 5))
def test_leaving_member_moves_only_its_own(
    connectors: dict[str, int], members: int
) -> None:  # A6, A7
    before = settled(work(connectors), fresh(members))
    gone = before.pop("m0")
    lost = dict.fromkeys(gone.holds, gone.url)
    targets = divide(work(connectors), before, lost, Memory(), NOW, 0.0).targets
    after = {member: Seat(seat.url, targets[member]) for member, seat in before.items()}
    check_whole_and_balanced(work(connectors), after)
    assert moved(before, after) == gone.holds


@given(CONNECTORS, st.integers(2, 5), st.booleans())
def test_lost_work_is_reassigned_only_after_the_rebalance_delay(  # A8, delay semantics
    connectors: dict[str, int], members: int, back: bool
) -> None:
    configured = work(connectors)
    before = settled(configured, fresh(members))
    gone = before.pop("m0")
    waiting = divide(configured, before, dict.fromkeys(gone.holds, gone.url), Memory(), NOW, 30.0)
    assert waiting.targets == {member: seat.holds for member, seat in before.items()}
    assert waiting.memory.until == (NOW + 30.0 if gone.holds else None)
    # A second loss extends nothing, and an empty worker that joins does not end the delay.
    joined = {**before, "m9": Seat("http://w9")}
    still = divide(configured, joined, {}, waiting.memory, NOW + 29.0, 30.0)
    assert still.memory.until == waiting.memory.until
    if gone.holds:
        assert still.targets["m9"] == frozenset()
    if back:
        returned = divide(
            configured, {**before, "m7": Seat(gone.url)}, {}, waiting.memory, NOW + 29.0, 30.0
        )
        assert returned.targets["m7"] == gone.holds or not gone.holds
        assert all(
            returned.targets[member] == seat.holds for member, seat in before.items() if gone.holds
        )
        assert returned.memory.until is None
    else:
        over = divide(configured, before, {}, waiting.memory, NOW + 30.0, 30.0)
        check_whole_and_balanced(
            configured, {m: Seat(s.url, over.targets[m]) for m, s in before.items()}
        )


@given(CONNECTORS, MEMBERS, st.integers(0, 6))
def test_new_connector_moves_no_task_of_another(
    connectors: dict[str, int], members: int, tasks: int
) -> None:  # A9
    before = settled(work(connectors), fresh(members))
    more = {**connectors, "z": tasks}
    after = settled(work(more), before)
    check_whole_and_balanced(work(more), after)
    assert moved(before, after) == work(more) - work(connectors)


@given(CONNECTORS, st.integers(2, 5))
def test_tasks_of_one_connector_are_spread(connectors: dict[str, int], members: int) -> None:  # A13
    alone = {"z": 2 * members}
    for seat in settled(work(alone), fresh(members)).values():
        assert sum(isinstance(item, ConnectorTaskId) for item in seat.holds) == 2


def test_item_that_two_members_hold_is_taken_from_both() -> None:
    seats = {"m0": Seat("u0", frozenset("a")), "m1": Seat("u1", frozenset("a"))}
    targets = divide(frozenset("a"), seats, {}, Memory(), NOW, 0.0).targets
    assert sorted(targets.values(), key=len) == [frozenset(), frozenset("a")]


def test_frozen_member_keeps_what_it_holds_and_gets_nothing() -> None:
    seats = {"m0": Seat("u0", frozenset("a"), frozen=True), "m1": Seat("u1")}
    targets = divide(frozenset("abc"), seats, {}, Memory(), NOW, 0.0).targets
    assert targets == {"m0": frozenset("a"), "m1": frozenset("bc")}
