"""The Iceberg sink: writes Debezium topics to tables exactly once.

Each cycle creates one commit per table.

| package | responsibility |
|---|---|
| `table` | tables and schema changes as plain values |
| `config` | conversion of a connector configuration to frozen values |
| `routing` | selection of the tables of a row |
| `conversion` | conversion of rows to table columns, and schema changes for new rows |
| `staging` | Parquet files per table and partition |
| `protocol` | all decisions, without I/O: plain data in, actions out |
| `task` | the sink task: polls, staging, and messages from the coordinator |
| `coordinator` | the thread in task 0 that performs the actions, and its channel to the tasks |
| `catalog`, `commit`, `driver` | access to Iceberg's Java classes, commits, and the Spark driver |
| `dead_letters`, `maintenance` | the dead-letter table; automatic compaction and expiration |
"""

from connect_py.api.plugin import Plugin, PluginKind

# otherwise, each process needs 0.4 s of CPU time to import these modules
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
