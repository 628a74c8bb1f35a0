"""The Iceberg sink: writes Debezium topics to tables exactly once.

Each cycle creates one commit per table.

| package | responsibility |
|---|---|
| `table` | tables and schema changes as plain values |
| `config` | conversion of a connector configuration to immutable objects |
| `routing` | selection of the tables for each row |
| `conversion` | conversion of rows to table columns, and schema changes for new rows |
| `staging` | writing of Parquet files for each table and Kafka partition |
| `protocol` | all decisions of the commit protocol (`docs/protocol.md`), without I/O |
| `task` | the sink task: polls, staging, and messages from the coordinator |
| `coordinator` | the thread in task 0 that carries out decisions, and its channel to the tasks |
| `catalog`, `commit`, `driver` | access to Iceberg's Java classes, commits, and the Spark driver |
| `dead_letters`, `maintenance` | the dead-letter table; automatic compaction and expiration |
"""

from connect_py.api.plugin import Plugin, PluginKind

# preloading these modules saves each process 0.4 s of CPU time
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
