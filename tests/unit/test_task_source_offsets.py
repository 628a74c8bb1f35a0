from __future__ import annotations

import pytest

from connect_py.api.errors import ConfigError
from connect_py.api.record import SourceRecord
from connect_py.task.source.submitted_records import SubmittedRecords, partition_key
from connect_py.task.source.topic_creation import NewTopicRule, TopicCreation

A, B = {"file": "a"}, {"file": "b"}
DEFAULT = {
    "topic.creation.default.partitions": "1",
    "topic.creation.default.replication.factor": "3",
}


def record(partition: dict[str, str], at: int) -> SourceRecord:
    return SourceRecord(
        "t", None, None, None, None, None, source_partition=partition, source_offset={"at": at}
    )


def test_an_offset_waits_for_every_earlier_record_of_its_partition() -> None:
    records = SubmittedRecords()
    first, second, third = (records.submit(record(A, n)) for n in (1, 2, 3))
    other = records.submit(record(B, 9))
    records.acknowledge(second)
    assert records.committable() == {}
    records.acknowledge(other)
    records.acknowledge(first)
    assert list(records.committable().values()) == [(A, {"at": 2}), (B, {"at": 9})]
    assert records.committable() == {}
    assert records.active == 1
    records.acknowledge(third)
    records.acknowledge(third)
    assert records.committable() == {partition_key(A): (A, {"at": 3})}
    assert records.active == 0


def test_source_partition_is_equal_in_any_order_of_members() -> None:
    records = SubmittedRecords()
    first = records.submit(record({"db": "x", "table": "t"}, 1))
    second = records.submit(record({"table": "t", "db": "x"}, 2))
    records.acknowledge(second)
    assert records.committable() == {}
    records.acknowledge(first)
    assert [offset for _, offset in records.committable().values()] == [{"at": 2}]


def test_topics_are_created_by_the_first_matching_group_or_default() -> None:
    rules = TopicCreation.parse(
        {
            **DEFAULT,
            "topic.creation.default.retention.ms": "1000",
            "topic.creation.default.include": "nothing.*",
            "topic.creation.groups": "wide, compacted",
            "topic.creation.wide.include": "big-\\d+,huge",
            "topic.creation.wide.exclude": "big-7",
            "topic.creation.wide.partitions": "12",
            "topic.creation.compacted.include": "big-.*",
            "topic.creation.compacted.replication.factor": "-1",
            "topic.creation.compacted.cleanup.policy": "compact",
        }
    )
    assert rules.rule("big-1") == rules.rule("huge") == NewTopicRule("wide", 12, 3, {})
    assert rules.rule("big-7") == NewTopicRule("compacted", 1, -1, {"cleanup.policy": "compact"})
    assert rules.rule("small") == NewTopicRule("default", 1, 3, {"retention.ms": "1000"})


def test_without_rules_or_permission_no_topic_is_created() -> None:
    assert TopicCreation.parse({}).rule("x") is None
    assert TopicCreation.parse(DEFAULT, enabled=False).rule("x") is None


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            {"topic.creation.groups": "a"},
            'Missing required configuration "topic.creation.default.partitions" which has no '
            "default value.",
        ),
        (
            DEFAULT | {"topic.creation.default.partitions": "0"},
            "Invalid value 0 for configuration topic.creation.default.partitions: Number of "
            "partitions must be",
        ),
        (
            DEFAULT | {"topic.creation.default.replication.factor": "-2"},
            "Invalid value -2 for configuration topic.creation.default.replication.factor: "
            "Replication factor must be",
        ),
        (
            DEFAULT | {"topic.creation.groups": "a", "topic.creation.a.include": "("},
            "Invalid value [(] for configuration topic.creation.a.include: Syntax error in regular "
            "expression",
        ),
    ],
)
def test_rules_that_make_no_sense_are_refused(config: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TopicCreation.parse(config)
    assert text in str(refused.value)
