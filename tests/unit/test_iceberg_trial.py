"""Results of a preview of records."""

from __future__ import annotations

import json
import math

from iceberg_staging_rows import batch, config, record

from connect_py.api.pipeline import PipelineOutput
from connect_py.api.schema import FLOAT64, INT64, Struct, struct
from connectors.iceberg_tools.trial.trial import Trial

ROW = struct(("id", INT64), ("amount", FLOAT64))


def test_preview_has_texts_where_json_has_no_number() -> None:
    trial = Trial(config(tables="db.a", tables__auto_create_enabled="true"), lambda _: None)
    amounts = [1.5, math.nan, -math.inf]
    records = [record(Struct.of(ROW, id=n, amount=amount), n) for n, amount in enumerate(amounts)]
    trial.take(PipelineOutput([batch(records)], []))
    samples = trial.tables["db.a"].samples
    assert [row["amount"] for row in samples] == [1.5, "NaN", "-Infinity"]
    json.dumps(samples, allow_nan=False)
