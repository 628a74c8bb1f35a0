"""Format the result of a trial run for the terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Final

from connect_py.plurals import pluralize
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg_tools.trial.create_statement import create_statement
from connectors.iceberg_tools.trial.trial import TableTrial, Trial

SHOWN: Final = 20  # maximum number of bad records to show


def trial_lines(config: IcebergSinkConfig, trial: Trial) -> Iterator[str]:
    """Yield a report about the rows of each table and the rejected records."""
    for table in trial.tables.values():
        yield ""
        yield from _of_table(config, table)
    for topic, count in trial.unrouted.items():
        if count:
            records = pluralize(count, "record has", "records have")
            yield f"\n{topic}: {records} no table ({config.unrouted.value})"
    if trial.bad:
        yield f"\n{pluralize(len(trial.bad), 'bad record')}:"
        for reason, count in Counter(each.reason.value for each in trial.bad).most_common():
            yield f"  {count} {reason}"
        for bad in trial.bad[:SHOWN]:
            yield f"  {bad.topic}-{bad.partition} at offset {bad.offset}: {bad.error}"
        if len(trial.bad) > SHOWN:
            yield "  ..."


def _of_table(config: IcebergSinkConfig, table: TableTrial) -> Iterator[str]:
    rows = pluralize(table.rows, "row")
    if table.ignored:
        rows += f", {pluralize(table.ignored, 'record has', 'records have')} no effect"
    if table.refused:
        yield f"{table.name}: {table.refused}"
        return
    yield f"{table.name}: {'exists' if table.new is None else 'would be created'}, {rows}"
    if table.new is not None:
        yield from (f"  {line}" for line in create_statement(table.name, table.new).splitlines())
    for change, count in table.changes.items():
        yield f"  {config.evolution[change.kind].value}: {change} ({pluralize(count, 'row')})"
    for sample in table.samples:
        yield f"  {json.dumps(sample, ensure_ascii=False)}"
