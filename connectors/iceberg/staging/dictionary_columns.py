"""Which columns of a file are worth a dictionary, found out by a look at some of its rows.

A dictionary of values that hardly come twice costs the writer a hash table, and the file both the
values and where they are: a third of the time that a file of change events took, and a fifth of its
size.
"""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc

from connectors.iceberg.conversion.columns import leaves

SAMPLE_PLACES = 8
ROWS_PER_PLACE = 512
# Of a value, on average; so every fourth of the rows of a place is enough to see runs that are
# worth it.
LEAST_REPEATS = 4
DICTIONARY_BYTES = 1 << 20  # the writer gives up dictionaries that grow larger
SAMPLE_BYTES = 16 << 20  # rows that are larger are not looked at


def dictionary_columns(rows: pa.Table) -> list[str] | bool:
    """The columns that are to have one, leaves of nested columns too, as paths in a Parquet file;
    True: all of them."""
    sample = _sample(rows)
    if sample is None:
        return True
    share = rows.num_rows / max(1, sample.num_rows)
    return [
        path
        for name, column in zip(sample.schema.names, sample.columns, strict=True)
        for _, path, leaf in leaves(name, column.combine_chunks())
        if _repeats(leaf, share)
    ]


def _sample(rows: pa.Table) -> pa.Table | None:
    """Some rows of each of several places: values come in runs as well as far apart. None: they are
    too large."""
    if rows.num_rows <= SAMPLE_PLACES * ROWS_PER_PLACE:
        return rows if rows.nbytes <= SAMPLE_BYTES else None
    step = (rows.num_rows - ROWS_PER_PLACE) / (SAMPLE_PLACES - 1)
    places = pa.concat_tables(
        rows.slice(int(step * place), ROWS_PER_PLACE) for place in range(SAMPLE_PLACES)
    )
    if places.nbytes > SAMPLE_BYTES:
        return None
    return places.combine_chunks().take(pa.array(range(0, places.num_rows, LEAST_REPEATS)))


def _repeats(sample: pa.Array, share: float) -> bool:
    """Whether the values of a column come often enough, given some of them and how many rows each
    of these stands for.

    So many values as would just pay, drawn with equal chances, show `bound` different ones in a
    sample of this size.
    """
    seen = len(sample) - sample.null_count
    if not seen:
        return True  # costs nothing
    width = max(1.0, sample.nbytes / len(sample))
    most = max(1.0, min(share * seen / LEAST_REPEATS, DICTIONARY_BYTES / width))
    bound = most * -math.expm1(-seen / most)
    return bool(pc.count_distinct(sample, mode="only_valid").as_py() <= bound)
