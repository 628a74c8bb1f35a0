"""How long a partition stops before the insert of a changed key."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from connect_py.api.record import TopicPartition
from connectors.iceberg.staging.key_changes import KeyChangeWaits, UnreadPair

P0, P1, P2 = (TopicPartition("shop", number) for number in range(3))
INSERT = UnreadPair("db.t", 7, "x", "[[1], [2]]")


def waiting(wait_ms: int = 1000) -> KeyChangeWaits:
    made = KeyChangeWaits(wait_ms)
    made.begin(P0, INSERT, 0)
    return made


def expired(
    made: KeyChangeWaits,
    now: int,
    ends: Callable[[TopicPartition], Mapping[TopicPartition, int] | None],
    read_to: Callable[[TopicPartition], int | None],
) -> list[TopicPartition]:
    """Where everything that was read is committed."""
    return made.expired(now, ends, read_to, read_to)


def test_partition_stops_before_the_insert_until_its_delete_is_read() -> None:
    made = waiting()
    assert (made.limit(P0), made.limit(P1), made.partitions()) == (7, None, [P0])
    assert made.read(lambda table: {"y"} if table == "db.t" else {"x"}, lambda *_: None) == []
    assert made.read(lambda table: {"x"} if table == "db.t" else set(), lambda *_: 7) == [P0]
    made.end(P0)
    assert not made


def test_insert_wait_ends_when_the_table_already_has_the_insert() -> None:
    made = waiting()
    assert made.read(lambda _: set(), lambda table, partition: 7) == []
    assert made.read(lambda _: set(), lambda table, partition: 8) == [P0]


def test_insert_wait_times_out_even_if_the_partition_is_revisited() -> None:
    made = waiting()
    made.begin(P0, INSERT, 900)
    assert expired(made, 999, lambda _: None, lambda _: None) == []
    assert expired(made, 1000, lambda _: None, lambda _: None) == [P0]
    made.begin(P0, INSERT._replace(offset=5), 1000)
    assert expired(made, 1999, lambda _: None, lambda _: None) == []


def test_wait_timeout_counts_from_the_last_progress_of_other_partitions() -> None:
    made = waiting()
    places = {P1: 3}

    def look(now: int) -> list[TopicPartition]:
        return expired(made, now, lambda _: {P1: 10, P2: 20}, places.get)

    assert look(0) == []
    places[P1] = 4
    assert look(900) == []
    assert look(1899) == []
    assert look(1900) == [P0]


def test_wait_timeout_counts_from_last_commit_below_the_recorded_ends() -> None:
    made = waiting()
    committed = {P0: 2, P1: 3}

    def look(now: int) -> list[TopicPartition]:
        return made.expired(now, lambda _: {P1: 10}, {P1: 10}.get, committed.get)

    assert look(0) == []
    committed[P0] = 7
    assert look(900) == []
    committed[P1] = 10
    assert look(1800) == []
    committed[P0], committed[P1] = 99, 99
    assert look(2799) == []
    assert look(2800) == [P0]


def test_one_of_equally_old_waits_expires_and_the_others_restart() -> None:
    made = waiting()
    made.begin(P1, INSERT._replace(pair="y"), 10)
    assert expired(made, 2000, lambda _: None, lambda _: None) == [P0]
    made.end(P0)
    assert expired(made, 2999, lambda _: None, lambda _: None) == []
    assert expired(made, 3000, lambda _: None, lambda _: None) == [P1]


def test_wait_ends_after_others_reach_ends_and_table_answers_twice() -> None:
    made = waiting()
    ends = {P1: 10, P2: 20}
    asked: list[TopicPartition] = []
    read = {P1: 10, P2: 19}

    def look(now: int) -> list[TopicPartition]:
        return expired(made, now, lambda tp: asked.append(tp) or dict(ends), read.get)  # type: ignore[func-returns-value]

    made.answered("db.t")
    assert look(1) == []
    ends[P1] = 99  # what comes later does not count
    made.answered("db.t")
    read[P2] = 20
    assert look(2) == []
    made.answered("db.t")
    made.answered("db.other")
    assert look(3) == []
    made.answered("db.t")
    assert look(4) == [P0]
    assert asked == [P0], "the ends are those of the insert's arrival"


def test_wait_continues_when_other_partitions_are_read_again_after_rollback() -> None:
    made = waiting(100_000)
    read = {P1: 10}

    def look() -> list[TopicPartition]:
        return expired(made, 1, lambda _: {P1: 10}, read.get)

    assert look() == []
    read[P1] = 4
    for _ in range(3):
        made.answered("db.t")
        assert look() == [], "the delete may be read yet"
    read[P1] = 10
    assert look() == []
    made.answered("db.t")
    made.answered("db.t")
    assert look() == [P0]


def test_log_ends_are_requested_again_while_the_cluster_is_unreachable() -> None:
    made = waiting(100_000)
    asked: list[int] = []
    for now in range(0, 10_001, 100):
        assert expired(made, now, lambda _, now=now: asked.append(now), lambda _: None) == []  # type: ignore[misc]
    assert asked == [0, 5000, 10_000]


def test_wait_in_a_single_partition_topic_needs_only_coordinator_answers() -> None:
    made = waiting()
    assert expired(made, 1, lambda _: {}, lambda _: None) == []
    made.answered("db.t")
    made.answered("db.t")
    assert expired(made, 2, lambda _: {}, lambda _: None) == [P0]
