"""The division of work as a pure function: the properties that every group may rely on."""

from __future__ import annotations

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from connect_py.herder.group.assignment import MemberLoad, PendingItems, balance_items
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


def fresh(count: int, first: int = 0) -> dict[str, MemberLoad]:
    return {f"m{number}": MemberLoad(f"http://w{number}") for number in range(first, first + count)}


def settled(configured: Items, loads: dict[str, MemberLoad]) -> dict[str, MemberLoad]:
    """Seats after a division without delay took effect."""
    targets = balance_items(configured, loads, {}, PendingItems(), NOW, 0.0).targets
    return {member: MemberLoad(load.url, targets[member]) for member, load in loads.items()}


def moved(before: dict[str, MemberLoad], after: dict[str, MemberLoad]) -> set[Item]:
    return {
        item
        for member, load in after.items()
        for item in load.items - before.get(member, MemberLoad("")).items
    }


def check_whole_and_balanced(configured: Items, loads: dict[str, MemberLoad]) -> None:
    held = [item for load in loads.values() for item in load.items]
    assert len(held) == len(set(held))
    assert set(held) == set(configured)
    for kind in (str, ConnectorTaskId):
        counts = [sum(isinstance(item, kind) for item in load.items) for load in loads.values()]
        assert max(counts) - min(counts) <= 1


@given(CONNECTORS, MEMBERS)
def test_everything_configured_is_assigned_once_and_evenly(
    connectors: dict[str, int], members: int
) -> None:  # A2, A5
    check_whole_and_balanced(work(connectors), settled(work(connectors), fresh(members)))


@given(CONNECTORS, MEMBERS, st.randoms())
def test_assignment_ignores_map_order_and_is_a_fixed_point(  # A3, A4
    connectors: dict[str, int], members: int, random: object
) -> None:
    loads = settled(work(connectors), fresh(members))
    assert settled(work(connectors), loads) == loads
    names = list(loads)
    random.shuffle(names)  # type: ignore[attr-defined]  # a random.Random
    assert settled(work(connectors), {name: loads[name] for name in names}) == loads


@given(CONNECTORS, MEMBERS)
def test_joining_member_receives_at_most_its_share_of_work(
    connectors: dict[str, int], members: int
) -> None:
    before = settled(work(connectors), fresh(members))  # A6
    after = settled(work(connectors), {**before, **fresh(1, members)})
    check_whole_and_balanced(work(connectors), after)
    joined = after[f"m{members}"].items
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
    lost = dict.fromkeys(gone.items, gone.url)
    targets = balance_items(work(connectors), before, lost, PendingItems(), NOW, 0.0).targets
    after = {member: MemberLoad(load.url, targets[member]) for member, load in before.items()}
    check_whole_and_balanced(work(connectors), after)
    assert moved(before, after) == gone.items


@given(CONNECTORS, st.integers(2, 5), st.booleans())
def test_lost_work_is_reassigned_only_after_the_rebalance_delay(  # A8, delay semantics
    connectors: dict[str, int], members: int, back: bool
) -> None:
    configured = work(connectors)
    before = settled(configured, fresh(members))
    gone = before.pop("m0")
    waiting = balance_items(
        configured, before, dict.fromkeys(gone.items, gone.url), PendingItems(), NOW, 30.0
    )
    assert waiting.targets == {member: load.items for member, load in before.items()}
    assert waiting.pending.until == (NOW + 30.0 if gone.items else None)
    # A second loss extends nothing, and an empty worker that joins does not end the delay.
    joined = {**before, "m9": MemberLoad("http://w9")}
    still = balance_items(configured, joined, {}, waiting.pending, NOW + 29.0, 30.0)
    assert still.pending.until == waiting.pending.until
    if gone.items:
        assert still.targets["m9"] == frozenset()
    if back:
        returned = balance_items(
            configured,
            {**before, "m7": MemberLoad(gone.url)},
            {},
            waiting.pending,
            NOW + 29.0,
            30.0,
        )
        assert returned.targets["m7"] == gone.items or not gone.items
        assert all(
            returned.targets[member] == load.items for member, load in before.items() if gone.items
        )
        assert returned.pending.until is None
    else:
        over = balance_items(configured, before, {}, waiting.pending, NOW + 30.0, 30.0)
        check_whole_and_balanced(
            configured, {m: MemberLoad(s.url, over.targets[m]) for m, s in before.items()}
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
    for load in settled(work(alone), fresh(members)).values():
        assert sum(isinstance(item, ConnectorTaskId) for item in load.items) == 2


def test_item_that_two_members_hold_is_taken_from_both() -> None:
    loads = {"m0": MemberLoad("u0", frozenset("a")), "m1": MemberLoad("u1", frozenset("a"))}
    targets = balance_items(frozenset("a"), loads, {}, PendingItems(), NOW, 0.0).targets
    assert sorted(targets.values(), key=len) == [frozenset(), frozenset("a")]


def test_frozen_member_keeps_what_it_holds_and_gets_nothing() -> None:
    loads = {"m0": MemberLoad("u0", frozenset("a"), frozen=True), "m1": MemberLoad("u1")}
    targets = balance_items(frozenset("abc"), loads, {}, PendingItems(), NOW, 0.0).targets
    assert targets == {"m0": frozenset("a"), "m1": frozenset("bc")}
