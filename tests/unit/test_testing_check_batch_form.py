"""`connect_py.testing.check_batch_form` notices a batch form that differs from the row form, and
counts the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow.compute as pc
import pytest

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows, DataError, NotColumnar
from connect_py.api.record import SinkRecord
from connect_py.api.schema import INT64
from connect_py.api.transformation import Transformation
from connect_py.testing import check_batch_form, sink_record

RECORDS = [sink_record(value=n, value_schema=INT64, offset=n) for n in range(6)]


class Halve(Transformation[SinkRecord]):
    """Halves even numbers, drops 4, and refuses 5; other numbers stay."""

    def __init__(self, batch_form: Callable[[Batch], Sequence[Batch]]) -> None:
        self._batch_form = batch_form

    def configure(self, configs: Mapping[str, str]) -> None:
        return

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        if record.value == 5:
            raise DataError("five")
        if record.value == 4:
            return None
        return record if record.value % 2 else record.replace(value=record.value // 2)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        return self._batch_form(batch)


def _halved(batch: Batch) -> Batch:
    numbers = batch.value.data
    halves = pc.if_else(pc.equal(pc.bit_wise_and(numbers, 1), 1), numbers, pc.divide(numbers, 2))
    return batch.replace(value=Column(INT64, halves))


def _right(batch: Batch) -> Sequence[Batch]:
    bad = [row for row, number in enumerate(batch.value.data.to_pylist()) if number == 5]
    if bad:
        raise BadRows(dict.fromkeys(bad, DataError("five")))
    return [_halved(batch.where(pc.not_equal(batch.value.data, 4)))]


def _not_columnar(batch: Batch) -> Sequence[Batch]:
    raise NotColumnar("never")


def test_records_whose_batch_and_row_forms_agree_are_counted() -> None:
    assert check_batch_form(Halve(_right), RECORDS) == 6
    assert check_batch_form(Halve(_not_columnar), RECORDS) == 0
    assert check_batch_form(Halve(_right), RECORDS[5:]) == 1


@pytest.mark.parametrize(
    ("wrong", "records"),
    [
        (lambda batch: [_halved(batch)], RECORDS[:5]),  # keeps 4
        (lambda batch: [batch], RECORDS[:3]),  # changes nothing
        (lambda batch: [], RECORDS[:3]),
        (lambda batch: [_halved(batch)], RECORDS[5:]),  # five is fine
    ],
)
def test_batch_form_that_differs_from_rows_fails_the_check(
    wrong: Callable[[Batch], Sequence[Batch]], records: Sequence[SinkRecord]
) -> None:
    with pytest.raises(AssertionError):
        check_batch_form(Halve(wrong), records)
