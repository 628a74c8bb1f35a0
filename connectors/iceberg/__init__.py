"""The Iceberg sink: Debezium topics land in tables, exactly once, by one commit per table and cycle.

| room | what happens there |
|---|---|
| `sink_task` | rows come in; the task does what the protocol decides |
| `routing`, `staging` | which table; conversion to its schema; Parquet |
| `channel` | how tasks and coordinator talk |
| `protocol` | every decision, as plain data in and answers out |
| `coordinator`, `table_manager` | carries the decisions out |
| `spark` | the driver, the catalog, the engines that commit |
"""

from connect_py.api.plugin import Plugin, PluginKind

PRELOAD = ("connectors.iceberg.connector", "connectors.iceberg.sink_task")  # 0.4 s of CPU in every process otherwise
PLUGINS = tuple(
    Plugin(
        PluginKind.SINK,
        f"{package}.IcebergSinkConnector",
        "connectors.iceberg.connector:IcebergSinkConnector",
        task_class=f"{package}.IcebergSinkTask",
    )
    for package in ("org.apache.iceberg.connect", "io.tabular.iceberg.connect")
)
