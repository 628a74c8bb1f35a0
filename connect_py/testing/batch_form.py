"""`check_batch_form`: verifies that a transformation's row and columnar forms agree."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows, NotColumnar
from connect_py.api.record import SinkRecord
from connect_py.api.transformation import Transformation


def check_batch_form(
    transformation: Transformation[SinkRecord], records: Sequence[SinkRecord]
) -> int:
    """Compare the row form and the columnar form of a transformation on the same records.

    If `apply` raises errors for some records, `apply_batch` must raise BadRows with exactly these
    records. The results for all other records are optional. Offsets must increase within each
    partition.

    Returns:
        The number of records for which the transformation has a columnar form.

    Raises:
        AssertionError: The forms differ.
    """
    return sum(_check_batch(transformation, batch) for batch in Batch.of(records))


def _check_batch(transformation: Transformation[SinkRecord], batch: Batch) -> int:
    expected: dict[int, SinkRecord | None] = {}
    bad: dict[int, Exception] = {}
    for index, record in enumerate(batch.records()):
        try:
            expected[index] = transformation.apply(record)
        except Exception as error:  # noqa: BLE001 - any error is a failure of this record
            bad[index] = error
    results: Sequence[Batch] = ()
    bad_rows: set[int] = set()
    has_results = True
    try:
        results = transformation.apply_batch(batch)
    except NotColumnar:
        return 0
    except BadRows as error:
        bad_rows = set(error.errors)
        has_results = error.results is not None
        results = error.results or ()
    assert bad_rows == bad.keys(), f"bad rows: {sorted(bad_rows)} in columns, {sorted(bad)} in rows"
    if not has_results:
        return len(bad) + _check_good_rows(transformation, batch, expected.keys())
    columnar = {
        (r.origin.partition, r.origin.offset): r for each in results for r in each.records()
    }
    by_row = {(r.origin.partition, r.origin.offset): r for r in expected.values() if r is not None}
    assert columnar == by_row, f"columns return {columnar}, rows return {by_row}"
    return len(batch)


def _check_good_rows(
    transformation: Transformation[SinkRecord], batch: Batch, good: Collection[int]
) -> int:
    if not good:
        return 0
    import pyarrow as pa

    return _check_batch(
        transformation,
        batch.where(pa.array([row in good for row in range(len(batch))], pa.bool_())),
    )
