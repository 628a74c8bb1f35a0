"""`connect-py load`: topics of a real broker, read and staged by Spark, as tasks of the connector
would have it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer
from fixtures.iceberg_commit import Lake, lake
from fixtures.loaded_shop import Shop, shop, state
from topic_reader import read_topic

__all__ = ["lake", "shop"]


def test_load_merges_changes_in_steps_and_goes_on_behind_them(shop: Shop, lake: Lake) -> None:
    for key in range(10):
        shop.change("c", key, f"first {key}")
    for key in range(5):
        shop.change("u", key, f"second {key}")
    shop.change("d", 9, None)
    planned = shop.run("--plan")
    assert "at most 16 records, about 2.4 kB of messages" in planned.output
    assert f"{shop.table}: would be created, 16 rows" in planned.output
    plan = json.loads(shop.run("--plan", "--json").stdout)
    assert (plan["records"], plan["sample"]["records"], 2350 < plan["bytes"] < 2450) == (
        16,
        16,
        True,
    )
    report = shop.loaded("--step-rows", "10")
    assert (report["records"], report["steps"]) == (16, 3)  # of which the first opens the table
    wanted = [(key, f"second {key}" if key < 5 else f"first {key}") for key in range(9)]
    assert (state(lake, shop.table), shop.offsets()) == (wanted, {0: 8, 1: 8})
    shop.change("u", 8, "third", city="Bern")  # a column that the table lacks
    again = shop.loaded("--step-rows", "1", iceberg__tables__evolve_schema_enabled="true")
    assert again["records"] == 1
    assert state(lake, shop.table, ("id", "name", "city"))[-1] == (8, "third", "Bern")


@pytest.mark.long  # in every run: test_load_merges_changes_in_steps_and_goes_on_behind_them
def test_split_partitions_are_read_at_once_and_committed_in_order(shop: Shop, lake: Lake) -> None:
    for number in range(60):  # all in one partition, each key many times
        shop.change("u" if number > 3 else "c", 2 * (number % 4), f"value {number}")
    shop.change("d", 6, None)
    report = shop.loaded("--step-rows", "10", "--split", "4")
    assert report["records"] == 61
    assert report["steps"] == 8  # the first opens the table
    assert state(lake, shop.table) == [(0, "value 56"), (2, "value 57"), (4, "value 58")]
    assert shop.offsets()[0] == 61


@pytest.mark.long  # in every run: test_load_merges_changes_in_steps_and_goes_on_behind_them
def test_tombstones_go_to_tables_that_ranges_before_reached(shop: Shop, lake: Lake) -> None:
    """Only the values of rows name their table."""
    for key in range(0, 12, 2):
        shop.change("c", key, "first")
    shop.produce(b'{"id": 2}', None, 0)
    shop.produce(b'{"id": 8}', None, 0)
    report = shop.loaded(
        "--step-rows",
        "2",
        "--split",
        "3",
        iceberg__tables="",
        iceberg__tables__dynamic_enabled="true",
        iceberg__tables__route_field="_cdc.target",
    )
    assert (report["records"], report["unrouted"]) == (8, {})
    assert [row[0] for row in state(lake, "shop.users")] == [0, 4, 6, 10]


@pytest.mark.long
def test_ranges_behind_a_schema_change_are_read_again(shop: Shop, lake: Lake) -> None:
    shop.change("c", 4, "value 58")
    shop.loaded()
    for number in range(25):
        more = {"city": "Bern"} if number >= 12 else {}
        shop.change("u", 2 * (number % 2), f"later {number}", **more)
    again = shop.loaded(
        "--step-rows", "5", "--split", "8", iceberg__tables__evolve_schema_enabled="true"
    )
    assert again["records"] == 25
    assert state(lake, shop.table, ("id", "name", "city")) == [
        (0, "later 24", "Bern"),
        (2, "later 23", "Bern"),
        (4, "value 58", None),
    ]


@pytest.mark.long
def test_load_keeps_dead_letters_and_names_a_bad_record(
    shop: Shop, lake: Lake, topic_prefix: str
) -> None:
    shop.change("c", 1, "good")
    shop.produce(b'{"id": 2}', b"{no json", 0)
    shop.change("c", 3, "good")
    stopped = shop.run("--json")
    assert (stopped.exit_code, f"{shop.topic}" in stopped.output) == (1, True), stopped.output
    assert "VALUE_CONVERTER" in stopped.output
    dead_letters = {
        "errors__tolerance": "all",
        "errors__deadletterqueue__iceberg__table": f"{shop.table}_dead",
        "errors__deadletterqueue__topic__name": f"{topic_prefix}dead",
        "errors__deadletterqueue__topic__replication__factor": "1",
    }
    report = shop.loaded(**dead_letters)
    assert report["records"] == 3
    assert state(lake, shop.table) == [(1, "good"), (3, "good")]
    assert state(lake, f"{shop.table}_dead", ["topic", "partition", "offset"]) == [
        (shop.topic, 0, 0)
    ]
    assert [letter.value for letter in read_topic(shop.servers, f"{topic_prefix}dead")] == [
        b"{no json"
    ]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--to", "yesterday"), "expected latest, a time"),
        (("--to", "users:0:1"), "users-0 does not exist or is not consumed"),
        (("--conf", "nothing"), "--conf"),
        (("--from", "users:0:x"), "expected latest, a time"),
    ],
)
def test_bounds_and_settings_that_make_no_sense_are_refused(
    shop: Shop, words: Sequence[str], why: str
) -> None:
    refused = shop.run(*words)
    assert (refused.exit_code, why in refused.output) == (1, True), refused.output


@pytest.mark.long
def test_load_between_bounds_reads_those_offsets_alone(shop: Shop, lake: Lake) -> None:
    for key in range(8):
        shop.change("c", key, "x")
    shop.loaded(
        "--from", f"{shop.topic}:0:1,{shop.topic}:1:2", "--to", f"{shop.topic}:0:3,{shop.topic}:1:3"
    )
    assert [row[0] for row in state(lake, shop.table)] == [2, 4, 5]
    assert shop.offsets() == {0: 3, 1: 3}
    refused = shop.run("--from", "earliest")
    assert (refused.exit_code, "is for a connector that has never run" in refused.output) == (
        1,
        True,
    )


def test_load_of_a_running_connector_is_refused(shop: Shop) -> None:
    consumer = Consumer({"bootstrap.servers": shop.servers, "group.id": f"connect-{shop.name}"})
    consumer.subscribe([shop.topic])
    try:
        while not consumer.assignment():
            consumer.poll(0.2)
        refused = shop.run()
    finally:
        consumer.close()
    assert (refused.exit_code, "has 1 member; stop it first" in refused.output) == (1, True), (
        refused.output
    )
