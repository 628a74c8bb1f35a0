"""The JSON document of a trial, and the table lookup that a trial uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg.errors import TableMissingError
from connectors.iceberg.protocol.ledger import ledger_key
from connectors.iceberg.table.table import TableDescription
from connectors.iceberg_tools.trial.create_statement import create_statement
from connectors.iceberg_tools.trial.topic_sample import TopicSample
from connectors.iceberg_tools.trial.trial import Trial


def table_look_up(
    config: IcebergSinkConfig, lake: LakeClient
) -> Callable[[str], TableDescription | None]:
    """Return a function that returns a table's description, or None if it does not exist."""
    key = ledger_key(config.connect_group)

    def look_up(name: str) -> TableDescription | None:
        table = config.table(name)
        try:
            ref, mode = table.commit_branch or "main", config.mode_of(name)
            return lake.load(name, key, ref, mode, table.id_columns).description
        except TableMissingError:
            return None

    return look_up


def trial_document(config: IcebergSinkConfig, sample: TopicSample, trial: Trial) -> dict[str, Any]:
    """Return the complete result as JSON values."""
    return {
        "connector": config.connector,
        "topics": sample.topics,
        "records": sample.records,
        "tables": [
            {
                "table": each.name,
                "exists": each.new is None and not each.refused,
                "refused": each.refused or None,
                "create": create_statement(each.name, each.new) if each.new is not None else None,
                "mode": config.mode_of(each.name).value,
                "rows": each.rows,
                "ignored": each.ignored,
                "changes": [
                    {
                        "change": str(change),
                        "action": config.evolution[change.kind].value,
                        "rows": count,
                    }
                    for change, count in each.changes.items()
                ],
                "samples": each.samples,
            }
            for each in trial.tables.values()
        ],
        "unrouted": {topic: count for topic, count in trial.unrouted.items() if count},
        "bad": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "reason": each.reason.value,
                "error": each.error,
            }
            for each in trial.bad
        ],
    }
