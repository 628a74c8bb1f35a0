from __future__ import annotations

from connect_py.task.used_topics import REPEAT_SECONDS, UsedTopics
from connect_py.testing import FakeClock


def test_topic_in_use_is_reported_again_at_intervals() -> None:
    told: list[str] = []
    clock = FakeClock()
    topics = UsedTopics(told.append, clock)
    topics.use(["a"])
    topics.use(["a", "b"])
    assert told == ["a", "b"]
    clock.sleep(REPEAT_SECONDS)
    assert told == ["a", "b"]  # a topic without records is not in use
    topics.use(["a"])
    topics.use(["a"])
    assert told == ["a", "b", "a"]
