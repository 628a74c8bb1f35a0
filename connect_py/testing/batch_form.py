"""`check_batch_form`: whether both forms of a transformation agree."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows, NotColumnar
from connect_py.api.record import SinkRecord
from connect_py.api.transformation import Transformation


def check_batch_form(
    transformation: Transformation[SinkRecord], records: Sequence[SinkRecord]
) -> int:
    """Compare the two forms of a transformation on the same records.

    A record that makes `apply` raise must be named by `BadRows` of `apply_batch`, as the worker
    asks: again, without the rows that are named, or along with what becomes of the others. Records
    of one partition have rising offsets.

    Returns:
        How many of the records had a batch form, and were compared.

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
        except Exception as error:  # noqa: BLE001 - whatever it raises is this record's failure
            bad[index] = error
    made: Sequence[Batch] = ()
    named: set[int] = set()
    done = True
    try:
        made = transformation.apply_batch(batch)
    except NotColumnar:
        return 0
    except BadRows as error:
        named = set(error.errors)
        done = error.made is not None
        made = error.made or ()
    assert named == bad.keys(), f"bad rows: {sorted(named)} in columns, {sorted(bad)} in rows"
    if not done:
        return len(bad) + _check_good_rows(transformation, batch, expected.keys())
    place = {(r.origin.partition, r.origin.offset): r for each in made for r in each.records()}
    kept = {(r.origin.partition, r.origin.offset): r for r in expected.values() if r is not None}
    assert place == kept, f"columns give {place}, rows give {kept}"
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
