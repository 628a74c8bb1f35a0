"""Which tables the rows of some topics would go to, by the configuration alone: no broker and no
catalog is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import Unrouted
from connectors.iceberg.routing.router import tables_of_text, tables_of_topic
from connectors.iceberg.table.table import WriteMode


@dataclass(frozen=True, slots=True)
class Route:
    """Where rows of one topic with one value of the route field go."""

    topic: str
    value: str | None  # of the route field; None: routing does not look at the rows
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What is configured for one table."""

    table: str
    mode: str
    # empty in append mode; in merge mode then the table's identifier fields count
    key: tuple[str, ...]
    partition_by: tuple[str, ...]  # of the table, if the sink creates it
    branch: str


@dataclass(frozen=True, slots=True)
class RoutePreview:
    """The answer to "what would go where"."""

    routes: tuple[Route, ...]
    tables: tuple[TablePlan, ...]
    unrouted: str  # what becomes of rows without a table
    creates: bool  # whether missing tables are created
    needs_value: bool  # routing looks at a field of the rows, and no value of it was given

    @staticmethod
    def of(config: IcebergSinkConfig, topics: Sequence[str], values: Sequence[str]) -> RoutePreview:
        """Route rows of these topics, with each of these values in the route field.

        Raises:
            ConfigError: A setting of a table that a row would go to does not parse.
        """
        by_field = bool(config.route_field) and not config.topic_rules
        routes = tuple(
            Route(topic, value, _tables(config, topic, value))
            for topic in topics
            for value in (values if by_field else (None,))
        )
        named = dict.fromkeys(
            (*config.tables, *(table for route in routes for table in route.tables))
        )
        plans = tuple(_plan(config, table) for table in named)
        return RoutePreview(
            routes, plans, config.unrouted.value, config.auto_create, by_field and not values
        )

    def lines(self) -> Iterable[str]:
        """For people."""
        for route in self.routes:
            value = "" if route.value is None else f" ({route.value})"
            yield (
                f"{route.topic}{value} -> "
                f"{', '.join(route.tables) or f'no table: {_FATE[self.unrouted]}'}"
            )
        if self.needs_value:
            yield "rows are routed by a field: give values of it with --value to see where they go"
        for table in self.tables:
            key = f", key {', '.join(table.key)}" if table.key else ""
            parts = (
                f", partitioned by {', '.join(table.partition_by)}" if table.partition_by else ""
            )
            made = "created if missing" if self.creates else "must exist"
            yield f"  {table.table}: {table.mode}{key}{parts}, branch {table.branch}, {made}"


_FATE = {
    Unrouted.IGNORE.value: "counted and left out",
    Unrouted.FAIL.value: "the task fails",
    Unrouted.DLQ.value: "a dead letter",
}


def _tables(config: IcebergSinkConfig, topic: str, value: str | None) -> tuple[str, ...]:
    if config.topic_rules:
        return tables_of_topic(config, topic)
    return config.tables if value is None else tuple(tables_of_text(config, value))


def _plan(config: IcebergSinkConfig, name: str) -> TablePlan:
    table, mode = config.table(name), config.mode_of(name)
    return TablePlan(
        name,
        mode.value,
        table.id_columns if mode is WriteMode.MERGE else (),
        tuple(f"{term.iceberg_transform}({term.column})" for term in table.partition_by),
        table.commit_branch or "main",
    )
