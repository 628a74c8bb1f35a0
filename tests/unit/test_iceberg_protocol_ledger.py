from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from connect_py.api.record import TopicPartition
from connectors.iceberg.commit.partial_rows import open_pairs_key
from connectors.iceberg.commit.rules.aggregates import LEDGER as AGGREGATE
from connectors.iceberg.commit.rules.rejected_rows import LEDGER as REJECTED
from connectors.iceberg.commit.rules.rejected_rows import rejected_key
from connectors.iceberg.protocol.ledger import (
    PACKED_PARTITIONS,
    Ledger,
    LedgerEntry,
    LedgerFormatError,
    LedgerProperty,
    SnapshotView,
    Standing,
    TableVersion,
    TableView,
    TopicLedger,
    group_of,
    ledger_key,
    look_up,
    source_offsets_key,
    table_version,
)
from connectors.iceberg.protocol.packed import pack
from connectors.iceberg.protocol.positions import Epoch, Position
from connectors.iceberg.protocol.unpublished_commits import unpublished_key

ORDERS_0 = TopicPartition("orders", 0)
LEDGER = Ledger(
    epoch=Epoch(7, "a1b2"),
    commit="c-1",
    cycle=17,
    table="t-1",
    cluster="k-1",
    topics={"orders": TopicLedger("id-1", {0: LedgerEntry(0, 100, 123)})},
)
PROPERTY = LedgerProperty(LEDGER, 20, {ORDERS_0: Position(0, 5)})


def view(
    *ancestors: tuple[int, Ledger | None],
    complete: bool = True,
    present: frozenset[int] = frozenset(),
    prop: LedgerProperty | None = PROPERTY,
    uuid: str = "t-1",
) -> TableView:
    snapshots = [SnapshotView(i, ledger.to_json() if ledger else None) for i, ledger in ancestors]
    ids = frozenset(i for i, _ in ancestors) | present
    return TableView(uuid, snapshots, complete, ids, prop.to_json() if prop else None)


def test_ledger_is_written_as_the_design_shows_it() -> None:
    assert LEDGER.to_json() == (
        '{"v":1,"epoch":[7,"a1b2"],"commit":"c-1","cycle":17,"table":"t-1","cluster":"k-1",'
        '"topics":{"orders":{"id":"id-1","p":{"0":[0,100,123]}}}}'
    )
    assert LEDGER.source_offsets() == '{"orders":{"0":123}}'
    assert ledger_key("connect-sink") == "connect-py.ledger.connect-sink"
    assert source_offsets_key("connect-sink") == "kafka.connect.source-offsets.connect-sink"


def test_ledger_and_property_come_back_as_they_were() -> None:
    assert Ledger.from_json(LEDGER.to_json()) == LEDGER
    assert LedgerProperty.from_json(PROPERTY.to_json()) == PROPERTY


def test_ledger_of_a_newer_format_version_is_refused() -> None:
    document = json.loads(LEDGER.to_json()) | {"v": 3}
    with pytest.raises(LedgerFormatError, match="newer"):
        Ledger.from_json(json.dumps(document))


def wide(partitions: int, generation: int = 0) -> Ledger:
    """Return two topics, one of them with gaps; offsets of all sizes, also after rewinds."""
    chance = random.Random(partitions)
    topics = {}
    for topic, step in (("orders", 1), ("a.b", 3)):
        bases = {
            p: chance.randrange(10 ** chance.randrange(1, 13))
            for p in range(0, partitions * step, step)
        }
        entries = {
            p: LedgerEntry(generation + p % 2, b, b + chance.randrange(5000))
            for p, b in bases.items()
        }
        topics[topic] = TopicLedger(f"id-{topic}", entries)
    return replace(LEDGER, topics=topics)


@pytest.mark.parametrize("partitions", [1, 99, 100, 101, 700])
def test_ledger_of_many_partitions_comes_back_as_it_was(partitions: int) -> None:
    ledger = wide(partitions)
    opened = {
        TopicPartition(t, p): e.position
        for t, held in ledger.topics.items()
        for p, e in held.partitions.items()
    }
    assert Ledger.from_json(ledger.to_json()) == ledger
    assert LedgerProperty.from_json(LedgerProperty(ledger, 20, opened).to_json()) == LedgerProperty(
        ledger, 20, opened
    )
    assert json.loads(ledger.to_json())["v"] == (1 if partitions < PACKED_PARTITIONS else 2)


def test_ledger_of_an_older_version_is_read_at_any_size() -> None:
    ledger = wide(300)
    document = json.loads(replace(ledger, topics={}).to_json())
    document["topics"] = {
        name: {
            "id": topic.topic_id,
            "p": {str(p): [e.generation, e.base, e.next] for p, e in topic.partitions.items()},
        }
        for name, topic in ledger.topics.items()
    }
    assert document["v"] == 1
    assert Ledger.from_json(json.dumps(document)) == ledger
    opened = {"orders": {str(p): [0, 5] for p in range(300)}}
    found = LedgerProperty.from_json(json.dumps({**document, "opened": opened, "snapshot": 20}))
    assert found.opened == {TopicPartition("orders", p): Position(0, 5) for p in range(300)}


def test_ledger_of_five_thousand_partitions_stays_below_forty_kilobytes() -> None:
    # random offsets, with the maximum information: on a real topic, they are similar
    chance = random.Random(1)
    topics = {}
    for number in range(5):
        bases = [chance.randrange(10**9) for _ in range(1000)]
        entries = {
            p: LedgerEntry(0, base, base + chance.randrange(5000)) for p, base in enumerate(bases)
        }
        topics[f"shop.public.orders_{number}"] = TopicLedger("jJFbNPdLQf2wgIIdXF3_Nw", entries)
    ledger = replace(LEDGER, topics=topics)
    assert len(ledger.to_json()) < 40_000  # 149,000 as plain JSON
    assert not ledger.repeats_offsets  # 79,000 more for people


def test_ledger_of_few_partitions_is_told_to_people() -> None:
    assert LEDGER.repeats_offsets
    assert wide(500).repeats_offsets
    assert not wide(501).repeats_offsets


@pytest.mark.parametrize("packed", ["", "AAAA", "é", 7, None, pack([1], [2], [3])])
def test_packed_partitions_that_are_damaged_are_an_error(packed: object) -> None:
    document = json.loads(LEDGER.to_json()) | {
        "v": 2,
        "topics": {"orders": {"id": "id-1", "packed": packed}},
    }
    with pytest.raises(LedgerFormatError):
        Ledger.from_json(json.dumps(document))


def test_superseded_ledgers_only_yield_the_commit_that_wrote_them() -> None:
    document = json.loads(replace(LEDGER, commit="c-0").to_json()) | {"topics": "whatever"}
    views = TableView(
        "t-1",
        [SnapshotView(20, LEDGER.to_json()), SnapshotView(10, json.dumps(document))],
        True,
        frozenset({10, 20}),
        PROPERTY.to_json(),
    )
    assert look_up(views).commits == {"c-1", "c-0"}
    too_new = TableView(
        "t-1",
        [SnapshotView(20, LEDGER.to_json()), SnapshotView(10, '{"v":3}')],
        True,
        frozenset({10, 20}),
        PROPERTY.to_json(),
    )
    with pytest.raises(LedgerFormatError, match="newer"):
        look_up(too_new)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v":1,"epoch":7}', "nonsense"])
def test_text_that_is_no_ledger_is_an_error(text: str) -> None:
    with pytest.raises(LedgerFormatError):
        Ledger.from_json(text)
    with pytest.raises(LedgerFormatError):
        LedgerProperty.from_json(text)


def test_higher_generation_compares_above_any_offset() -> None:
    assert LedgerEntry(1, 0, 5).position > LedgerEntry(0, 0, 500).position


def test_newest_ancestor_with_our_key_is_the_ledger() -> None:
    older = replace(LEDGER, commit="c-0")
    found = look_up(view((30, None), (20, LEDGER), (10, older)))  # 30: somebody's compaction
    assert (found.standing, found.ledger) == (Standing.FOUND, LEDGER)
    assert found.version == TableVersion("t-1", 20, 20)
    assert found.commits == {"c-1", "c-0"}


def test_commit_of_another_writer_does_not_change_the_version() -> None:
    assert table_version(view((30, None), (20, LEDGER))) == table_version(view((20, LEDGER)))


def test_property_speaks_when_our_snapshots_were_expired() -> None:
    found = look_up(view((30, None), complete=False))
    assert (found.standing, found.ledger) == (Standing.EXPIRED, LEDGER)


def test_ledger_that_is_not_the_named_one_was_rolled_back() -> None:
    older = replace(LEDGER, commit="c-0")
    found = look_up(view((10, older), present=frozenset({20})))
    assert (found.standing, found.ledger) == (Standing.ROLLED_BACK, older)
    assert found.version != table_version(view((10, older), prop=replace(PROPERTY, snapshot=10)))


def test_rollback_before_the_first_commit_knows_the_opening_positions() -> None:
    found = look_up(view((1, None), present=frozenset({20})))
    assert (found.standing, found.ledger, found.opened) == (
        Standing.ROLLED_BACK,
        None,
        {ORDERS_0: Position(0, 5)},
    )


def test_table_with_other_rows_is_replaced_and_not_rolled_back() -> None:
    made_of_itself = replace(view((50, None), present=frozenset({10, 20})), replaced=True)
    assert look_up(made_of_itself).standing is Standing.REPLACED
    # an empty one
    assert look_up(replace(made_of_itself, replaced=False)).standing is Standing.ROLLED_BACK
    assert look_up(replace(view((50, None), prop=None), replaced=True)).standing is Standing.NONE


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("present", [frozenset[int](), frozenset({20})])
def test_dropped_branch_with_our_commits_is_reported_as_lost(
    complete: bool, present: frozenset[int]
) -> None:
    dropped = replace(view((50, None), complete=complete, present=present), branch_missing=True)
    assert look_up(dropped).standing is Standing.BRANCH_LOST
    assert look_up(replace(dropped, property=None)).standing is Standing.NONE


def test_dropped_branch_restarts_at_main_when_its_contents_are_known() -> None:
    published = replace(view((20, LEDGER)), branch_missing=True)
    assert look_up(published).standing is Standing.FOUND
    older = replace(LEDGER, commit="c-0")
    assert look_up(replace(view((10, older)), branch_missing=True)).standing is Standing.ROLLED_BACK
    empty = replace(view(present=frozenset({20})), branch_missing=True)
    assert look_up(empty).standing is Standing.ROLLED_BACK


def test_rolled_back_below_an_expired_ledger_is_not_guessed_at() -> None:
    assert (
        look_up(view((15, None), complete=False, present=frozenset({20}))).standing is Standing.LOST
    )


def test_ledger_of_another_table_counts_for_nothing_but_its_epoch() -> None:
    found = look_up(view((20, LEDGER), uuid="t-2"))  # created again with the old properties
    assert (found.standing, found.ledger) == (Standing.NONE, None)
    assert found.version == TableVersion("t-2", None, None)
    assert found.highest_epoch == Epoch(7, "a1b2")


def test_table_never_written_has_no_ledger() -> None:
    assert look_up(view((1, None), prop=None)).standing is Standing.NONE
    assert look_up(view(prop=None)).standing is Standing.NONE


@pytest.mark.parametrize("key", [unpublished_key, rejected_key, open_pairs_key])
def test_groups_whose_names_end_alike_have_properties_apart(key: Callable[[str], str]) -> None:
    """A connector may be named `of-ledger.orders`."""
    names = {
        key(ledger_key(group))
        for group in ("connect-of-ledger.orders", "connect-my-ledger.orders", "orders")
    }
    assert len(names) == 3


@pytest.mark.parametrize("prefix", [ledger_key(""), AGGREGATE, REJECTED])
@pytest.mark.parametrize("group", ["connect-orders", "connect-of-ledger.orders"])
def test_group_is_found_in_the_name_of_each_ledger(prefix: str, group: str) -> None:
    assert group_of(prefix + group) == group
