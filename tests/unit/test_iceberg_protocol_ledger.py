from __future__ import annotations

import json
from dataclasses import replace

import pytest

from connect_py.api.record import TopicPartition
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerEntry,
    LedgerFormatError,
    LedgerProperty,
    SnapshotView,
    Standing,
    TableVersion,
    TableView,
    TopicLedger,
    ledger_key,
    look_up,
    source_offsets_key,
    table_version,
)
from connectors.iceberg.protocol.positions import Epoch, Position

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


def test_ledger_of_a_newer_version_is_refused_and_not_guessed_at() -> None:
    document = json.loads(LEDGER.to_json()) | {"v": 2}
    with pytest.raises(LedgerFormatError, match="newer"):
        Ledger.from_json(json.dumps(document))


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


def test_rolled_back_to_before_our_first_commit_knows_where_the_table_began() -> None:
    found = look_up(view((1, None), present=frozenset({20})))
    assert (found.standing, found.ledger, found.opened) == (Standing.ROLLED_BACK, None, {ORDERS_0: Position(0, 5)})


def test_rolled_back_below_an_expired_ledger_is_not_guessed_at() -> None:
    assert look_up(view((15, None), complete=False, present=frozenset({20}))).standing is Standing.LOST


def test_ledger_of_another_table_counts_for_nothing_but_its_epoch() -> None:
    found = look_up(view((20, LEDGER), uuid="t-2"))  # created again with the old properties
    assert (found.standing, found.ledger) == (Standing.NONE, None)
    assert found.version == TableVersion("t-2", None, None)
    assert found.highest_epoch == Epoch(7, "a1b2")


def test_table_never_written_has_no_ledger() -> None:
    assert look_up(view((1, None), prop=None)).standing is Standing.NONE
    assert look_up(view(prop=None)).standing is Standing.NONE
