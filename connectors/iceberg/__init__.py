"""The Iceberg sink: Debezium topics land in tables, exactly once, by one commit per table and
cycle.

| room | what happens there |
|---|---|
| `config` | the keys of a connector become frozen values |
| `task`, `sink_task` | rows come in, poll by poll; what the coordinator says is carried out |
| `routing`, `staging` | which table; conversion to its schema; Parquet |
| `schema` | what a table has, and how it follows the rows |
| `channel` | how tasks and coordinator talk |
| `protocol` | every decision, as plain data in and answers out |
| `coordinator` | carries the decisions out |
| `spark` | the driver, the catalog, the engines that commit |
"""

from connect_py.api.plugin import Plugin, PluginKind

# 0.4 s of CPU in every process otherwise
PRELOAD = ("connectors.iceberg.connector", "connectors.iceberg.task")
PLUGINS = tuple(
    Plugin(
        PluginKind.SINK,
        f"{package}.IcebergSinkConnector",
        "connectors.iceberg.connector:IcebergSinkConnector",
        task_class=f"{package}.IcebergSinkTask",
    )
    for package in ("org.apache.iceberg.connect", "io.tabular.iceberg.connect")
)
