"""Data quality checks: valid and invalid settings, and the expectations of a table."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from connect_py.api.errors import ConfigError
from connect_py.api.record import TopicPartition
from connectors.iceberg.config.allowed_settings import USER_CODE, check_allowed, refused_code
from connectors.iceberg.config.expectations import Expectation, ExpectationAction
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.protocol.ledger import Ledger, LedgerEntry, TopicLedger
from connectors.iceberg.protocol.positions import Epoch, Position
from connectors.iceberg.protocol.unpublished_commits import (
    ComesAgain,
    Unpublished,
    UnpublishedCommit,
)

BASE = {
    "name": "sink",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "shop.orders,shop.items",
    "iceberg.catalog.type": "rest",
    "iceberg.tables.upsert-mode-enabled": "true",
    "iceberg.tables.default-id-columns": "id",
}
A = ExpectationAction


def parsed(**more: str) -> IcebergSinkConfig:
    return IcebergSinkConfig.parse(
        {**BASE, **{key.replace("__", "."): value for key, value in more.items()}}
    )


def of_table(props: Mapping[str, str], table: str) -> dict[str, tuple[str, ExpectationAction]]:
    config = IcebergSinkConfig.parse({**BASE, **props})
    assert [warning for warning in config.warnings if "expect" in warning] == []
    return {each.name: (each.sql, each.action) for each in config.table(table).expectations}


def test_hold_is_the_action_where_none_is_named() -> None:
    props = {"iceberg.ext.expect.paid": " amount >= 0 "}
    assert of_table(props, "shop.orders") == {"paid": ("amount >= 0", A.HOLD)}


def test_own_expectations_of_a_table_win_by_name() -> None:
    props = {
        "iceberg.ext.expect.paid": "amount >= 0",
        "iceberg.ext.expect.paid.action": "drop",
        "iceberg.ext.expect.few": "SELECT count(*) < 10 FROM deleted",
        "iceberg.ext.expect.few.tables": r"shop\.i.*",
        "iceberg.table.shop.orders.expect.paid": "amount > 0",
        "iceberg.table.shop.orders.expect.known": "region IS NOT NULL",
        "iceberg.table.shop.orders.expect.known.action": "dead-letter",
    }
    assert of_table(props, "shop.orders") == {
        "paid": ("amount > 0", A.HOLD),
        "known": ("region IS NOT NULL", A.DEAD_LETTER),
    }
    assert of_table(props, "shop.items") == {
        "paid": ("amount >= 0", A.DROP),
        "few": ("SELECT count(*) < 10 FROM deleted", A.HOLD),
    }


def test_dead_letters_and_change_logs_have_no_expectations() -> None:
    props = {
        "iceberg.ext.expect.paid": "amount >= 0",
        "iceberg.ext.envelope": "debezium",
        "iceberg.ext.changelog-suffix": "_changes",
        "errors.tolerance": "all",
        "errors.deadletterqueue.iceberg.table": "shop.dead_letters",
    }
    assert of_table(props, "shop.dead_letters") == {}
    assert of_table(props, "shop.orders_changes") == {}
    assert set(of_table(props, "shop.orders")) == {"paid"}


@pytest.mark.parametrize(
    ("props", "key", "why"),
    [
        (
            {"expect.paid.action": "drop"},
            "expect.paid.action",
            "iceberg.ext.expect.paid is not set",
        ),
        ({"expect.paid.tables": "x"}, "expect.paid.tables", "iceberg.ext.expect.paid is not set"),
        (
            {"expect.paid": "true", "expect.paid.action": "log"},
            "expect.paid.action",
            "invalid action 'log'",
        ),
        (
            {"expect.paid": "true", "expect.paid.tables": "("},
            "expect.paid.tables",
            "invalid regular expression",
        ),
        (
            {"expect.paid": "true", "expect.paid.severity": "x"},
            "expect.paid.severity",
            "unknown key",
        ),
        ({"expect.paid": " "}, "expect.paid", "is empty"),
        ({"expect.pa id": "true"}, "expect.pa id", "may contain only letters"),
        (
            {"expect.x": "SELECT true", "expect.x.action": "drop"},
            "expect.x",
            "requires a condition on rows",
        ),
        (
            {"expect.x": "reflect('java.lang.Runtime', 'exit') = ''"},
            "expect.x",
            "must not contain reflect",
        ),
        ({"expect.x": "JAVA_METHOD('a', 'b') = ''"}, "expect.x", "must not contain JAVA_METHOD"),
        (
            {"expect.x": "SELECT count(*) > 0 FROM text.`/etc/passwd`"},
            "expect.x",
            "must not contain `/etc/passwd`",
        ),
    ],
)
def test_expectations_that_make_no_sense_are_refused(
    props: Mapping[str, str], key: str, why: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        IcebergSinkConfig.parse(
            {**BASE, **{f"iceberg.ext.{name}": text for name, text in props.items()}}
        )
    assert refused.value.key == f"iceberg.ext.{key}"
    assert why in refused.value.why


def test_sql_of_a_connector_needs_the_workers_leave() -> None:
    props = {
        "iceberg.ext.expect.paid": "amount >= 0",
        "iceberg.ext.expect.paid.action": "drop",
        "iceberg.table.shop.orders.expect.known": "region IS NOT NULL",
    }
    nothing: dict[str, str] = {}
    assert [key for key, _ in refused_code(props, lambda _: nothing)] == [
        "iceberg.ext.expect.paid",
        "iceberg.table.shop.orders.expect.known",
    ]
    allowed = {USER_CODE: "iceberg.ext.expect.*"}
    [(key, why)] = refused_code(props, lambda _: allowed)
    assert (key, USER_CODE in why) == ("iceberg.table.shop.orders.expect.known", True)
    with pytest.raises(ConfigError, match=r"orders\.expect\.known: runs SQL"):
        check_allowed(props, lambda _: allowed)
    check_allowed(props, lambda _: {USER_CODE: "iceberg.*"})


@pytest.mark.parametrize(
    ("sql", "is_query"),
    [
        ("SELECT true", True),
        ("\n with x as (select 1) select true from x", True),
        ("selected", False),
        ("amount > (SELECT 1)", False),
    ],
)
def test_queries_are_told_from_conditions_by_their_beginning(sql: str, is_query: bool) -> None:
    assert Expectation("x", sql).is_query is is_query


def test_decision_about_rows_is_for_expectations_that_failed() -> None:
    rules = [
        Expectation("paid", "x > 0"),
        Expectation("known", "y > 0"),
        Expectation("paid", "x > 0", A.ALERT),
    ]
    of_earlier_release = ComesAgain(A.DROP, {})
    assert [of_earlier_release.applies_to(each) for each in rules] == [True, True, False]
    assert [ComesAgain(A.DROP, {}, frozenset({"paid"})).applies_to(each) for each in rules] == [
        True,
        False,
        False,
    ]


def ledger(base: int, next_: int, generation: int = 0) -> Ledger:
    topics = {"orders": TopicLedger("id", {0: LedgerEntry(generation, base, next_)})}
    return Ledger(Epoch(1, "a"), "c", 1, "t", "k", topics)


def test_decision_about_rows_ends_where_they_end() -> None:
    again = ComesAgain(A.DROP, {TopicPartition("orders", 0): Position(0, 20)})
    assert [again.covers(ledger(base, base + 5)) for base in (0, 15, 19, 20)] == [
        True,
        True,
        True,
        False,
    ]
    assert [again.is_over(ledger(0, next_)) for next_ in (19, 20)] == [False, True]
    # a user rewound the topic since: another matter
    assert not again.covers(ledger(3, 5, generation=1))
    text = Unpublished((UnpublishedCommit(7, "c", 1, {"paid": 2}),), again).to_text()
    assert Unpublished.of_text(text).again == again
    some = ComesAgain(A.DROP, again.through, frozenset({"paid"}))
    assert Unpublished.of_text(Unpublished((), some).to_text()).again == some
    named = Unpublished((), None, "audit").with_commit(UnpublishedCommit(7, "c", 1, {"paid": 2}))
    assert (named.ref, Unpublished.of_text(named.to_text())) == ("audit", named)
    assert Unpublished.of_text("") == Unpublished()
    with pytest.raises(ValueError, match="invalid property connect-py"):
        Unpublished.of_text('{"commits": 3}')
