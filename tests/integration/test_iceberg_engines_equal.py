"""The MERGE that deletes against the full MERGE and a plain dictionary, on random changes over
several cycles."""

from __future__ import annotations

import decimal
import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from fixtures.iceberg_commit import BY_REGION, Lake, Sink, lake, order
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from short_form import short_form

from connectors.iceberg.protocol.commit_request import EngineName
from connectors.iceberg.table.table import StagedKind

__all__ = ["lake"]


# an example takes seconds: shrinking would take minutes
UNSHRUNK = (Phase.explicit, Phase.generate)

KEYS = st.tuples(st.integers(1, 3), st.sampled_from(["a", "b", "ö", ""]))
VALUES = st.fixed_dictionaries(
    {
        "region": st.sampled_from(["north", "south", None]),
        "amount": st.none()
        | st.decimals(-99999, 99999, places=2, allow_nan=False, allow_infinity=False),
        "notes": st.none() | st.lists(st.none() | st.sampled_from(["x", "yy"]), max_size=2),
    }
)
DELETE = st.just("delete")
PATCH = st.tuples(st.just("patch"), VALUES)
CYCLE = st.dictionaries(KEYS, VALUES | DELETE, max_size=8) | st.dictionaries(
    KEYS, VALUES | DELETE | PATCH, max_size=8
)
Change = Mapping[str, Any] | str | tuple[str, Mapping[str, Any]]


def apply(
    model: dict[tuple[int, str], dict[str, Any]], cycle: Mapping[tuple[int, str], Change]
) -> None:
    for key, change in cycle.items():
        if change == "delete":
            model.pop(key, None)
        elif isinstance(change, tuple):
            kept = model[key]["notes"] if key in model else None
            model[key] = order(*key, **{**change[1], "notes": kept})
        else:
            model[key] = order(*key, **change)  # type: ignore[arg-type] - the last case left


def commit(sink: Sink, cycle: Mapping[tuple[int, str], Change], engine: EngineName) -> None:
    rows = [order(*key, **change) for key, change in cycle.items() if isinstance(change, dict)]
    patches = [
        order(*key, **{**change[1], "notes": None})
        for key, change in cycle.items()
        if isinstance(change, tuple)
    ]
    deletes = [
        {"shop": key[0], "number": key[1]} for key, change in cycle.items() if change == "delete"
    ]
    sink.commit(
        [
            *sink.stage(rows[::2]),
            *sink.stage(rows[1::2]),
            *sink.stage(patches, StagedKind.CHANGES, ["notes"]),
            *sink.stage(deletes, StagedKind.DELETES),
        ],
        engine,
    )


def shown(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a row of the model as in the table: without nulls, and with the moment as a string."""
    amount = row["amount"]
    values = {**row, "amount": None if amount is None else float(decimal.Decimal(amount))}
    values["placed"] = "2026-01-02T03:04:05.678Z"  # JSON shows milliseconds
    return tuple((name, value) for name, value in values.items() if value is not None)


def ordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: (dict(row)["shop"], dict(row)["number"]))


@pytest.mark.long  # in every run: test_corpus_replay.py
@pytest.mark.timeout(400)  # eight streams of up to four cycles, each through two engines
@pytest.mark.parametrize(
    ("version", "spec"), short_form(itertools.product((2, 3), (None, BY_REGION)), [(2, BY_REGION)])
)
def test_merge_and_full_merge_keep_the_last_state_per_key(
    lake: Lake, version: int, spec: str | None
) -> None:
    @settings(
        max_examples=4,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=UNSHRUNK,
    )
    @given(st.lists(CYCLE, min_size=2, max_size=4))
    def check(cycles: list[dict[tuple[int, str], Change]]) -> None:
        merge = lake.make(version=version, spec=spec)
        full = lake.make(version=version, spec=spec)
        model: dict[tuple[int, str], dict[str, Any]] = {}
        for cycle in cycles:
            apply(model, cycle)
            commit(merge, cycle, EngineName.MERGE)
            commit(full, cycle, EngineName.FULL_MERGE)
        expected = ordered([shown(row) for row in model.values()])
        assert ordered(merge.rows()) == expected
        assert ordered(full.rows()) == expected

    check()
