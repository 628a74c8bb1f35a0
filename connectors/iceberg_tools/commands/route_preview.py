"""Preview how a configuration routes topics to tables, without a broker or a catalog."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.sink_options import Unrouted
from connectors.iceberg.routing.router import tables_of_text, tables_of_topic
from connectors.iceberg.table.table import WriteMode


@dataclass(frozen=True, slots=True)
class Route:
    """The tables for rows from one topic with one value of the route field."""

    topic: str
    value: str | None  # value of the route field, or None if rows are not routed by a field
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Configuration of one table."""

    table: str
    mode: str
    # empty in append mode; if empty in merge mode, the identifier fields of the table are the key
    key: tuple[str, ...]
    partition_by: tuple[str, ...]  # used if the sink creates the table
    branch: str


@dataclass(frozen=True, slots=True)
class RoutePreview:
    """Routes and tables of a configuration."""

    routes: tuple[Route, ...]
    tables: tuple[TablePlan, ...]
    unrouted: str  # handling of rows without a table
    creates: bool  # True if missing tables are created
    needs_value: bool  # True if rows are routed by a field, and no value was specified

    @staticmethod
    def of(config: IcebergSinkConfig, topics: Sequence[str], values: Sequence[str]) -> RoutePreview:
        """Return the routes for these topics and each of these values of the route field.

        Raises:
            ConfigError: A setting of one of the tables is invalid.
        """
        by_field = bool(config.route_field) and not config.topic_rules
        routes = tuple(
            Route(topic, value, _tables(config, topic, value))
            for topic in topics
            for value in (values if by_field else (None,))
        )
        tables = dict.fromkeys(
            (*config.tables, *(table for route in routes for table in route.tables))
        )
        plans = tuple(_plan(config, table) for table in tables)
        return RoutePreview(
            routes, plans, config.unrouted.value, config.auto_create, by_field and not values
        )

    def lines(self) -> Iterable[str]:
        """Yield the lines of the report."""
        for route in self.routes:
            value = "" if route.value is None else f" ({route.value})"
            yield (
                f"{route.topic}{value} -> "
                f"{', '.join(route.tables) or f'no table: {_HANDLING[self.unrouted]}'}"
            )
        if self.needs_value:
            yield "rows are routed by a field; specify its values with --value"
        for table in self.tables:
            key = f", key {', '.join(table.key)}" if table.key else ""
            parts = (
                f", partitioned by {', '.join(table.partition_by)}" if table.partition_by else ""
            )
            creation = "created if missing" if self.creates else "must exist"
            yield f"  {table.table}: {table.mode}{key}{parts}, branch {table.branch}, {creation}"


_HANDLING = {
    Unrouted.IGNORE.value: "counted and dropped",
    Unrouted.FAIL.value: "the task fails",
    Unrouted.DLQ.value: "sent to the dead-letter queue",
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
