"""The Iceberg sink: Debezium topics land in tables, exactly once, by one commit per table and
cycle.

| package | responsibility |
|---|---|
| `table` | tables, and changes of their schema, as plain values |
| `config` | the keys of a connector become frozen values |
| `routing` | the tables of a row |
| `conversion` | conversion of rows to a table's columns, and changes of the table for its rows |
| `staging` | Parquet files per table and partition |
| `protocol` | every decision, as plain data in and actions out |
| `task` | the sink task: polls, staging, and the coordinator's messages |
| `coordinator` | the thread in task 0 that carries out the decisions; its channel to the tasks |
| `catalog`, `commit`, `driver` | Iceberg's Java classes, the commit, and the Spark driver |
| `dead_letters`, `maintenance` | the dead-letter table; automatic compaction and expiration |
"""

from connect_py.api.plugin import Plugin, PluginKind

# 0.4 s of CPU in every process otherwise
PRELOAD = ("connectors.iceberg.connector", "connectors.iceberg.task.sink_task")
PLUGINS = tuple(
    Plugin(
        PluginKind.SINK,
        f"{package}.IcebergSinkConnector",
        "connectors.iceberg.connector:IcebergSinkConnector",
        task_class=f"{package}.IcebergSinkTask",
    )
    for package in ("org.apache.iceberg.connect", "io.tabular.iceberg.connect")
)
