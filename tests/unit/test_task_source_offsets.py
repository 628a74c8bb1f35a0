from __future__ import annotations

from connect_py.task.source_loop import TopicCreation
from connect_py.task.submitted_records import SubmittedRecords

A, B = {"file": "a"}, {"file": "b"}


def test_an_offset_waits_for_every_earlier_record_of_its_partition() -> None:
    records = SubmittedRecords()
    first, second, third = (records.submit(A, {"at": n}) for n in (1, 2, 3))
    other = records.submit(B, {"at": 9})
    records.acknowledge(second)
    assert records.committable() == []
    records.acknowledge(other)
    records.acknowledge(first)
    assert records.committable() == [(A, {"at": 2}), (B, {"at": 9})]
    assert records.committable() == []
    records.acknowledge(third)
    assert records.committable() == [(A, {"at": 3})]


def test_topics_are_created_by_the_first_group_that_fits_else_by_the_default() -> None:
    config = {
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "3",
        "topic.creation.groups": "wide",
        "topic.creation.wide.include": "big-.*,huge",
        "topic.creation.wide.exclude": "big-not",
        "topic.creation.wide.partitions": "12",
    }
    rules = TopicCreation.parse(config, enabled=True)
    assert rules.rule("big-orders") == rules.rule("huge") == (12, 3)
    assert rules.rule("big-not") == rules.rule("small") == (1, 3)


def test_without_a_default_group_or_permission_no_topic_is_created() -> None:
    assert TopicCreation.parse({}, enabled=True).rule("x") is None
    config = {"topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "1"}
    assert TopicCreation.parse(config, enabled=False).rule("x") is None
