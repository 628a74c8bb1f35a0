"""Dead-letter records of records that may be read again are delayed until their records count."""

from __future__ import annotations

from connect_py.api.errors import DataError
from connect_py.api.record import RecordOrigin, TimestampType, TopicPartition
from connect_py.error_handling.error_handler import ErrorReporter
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.later_reporter import LaterReporter
from connect_py.error_handling.stage import Stage


class Kept(ErrorReporter):
    def __init__(self) -> None:
        self.offsets: list[int] = []

    def report(self, failed: FailedRecord) -> None:
        assert failed.origin is not None
        self.offsets.append(failed.origin.offset)


def failed(offset: int, partition: int = 0) -> FailedRecord:
    origin = RecordOrigin("orders", partition, offset, b"k", b"v", ())
    return FailedRecord(
        Stage.VALUE_CONVERTER, "Json", DataError("bad"), origin, 0, TimestampType.CREATE_TIME
    )


def test_failures_below_the_handled_offset_are_sent_once() -> None:
    kept = Kept()
    later = LaterReporter(kept)
    for offset in (3, 4, 5):
        later.report(failed(offset))
    later.report(failed(3, partition=1))
    assert kept.offsets == []
    later.send({TopicPartition("orders", 0): 5})
    assert kept.offsets == [3, 4]
    later.send({TopicPartition("orders", 0): 9, TopicPartition("orders", 1): 9})
    assert kept.offsets == [3, 4]  # records that were not handled are read again
