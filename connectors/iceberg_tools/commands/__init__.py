"""Commands of `connect-py` for the tables of the Iceberg sink."""

from connect_py.api.command import CommandEntry

COMMANDS = (
    CommandEntry(
        "at",
        "Show the snapshot that was current at a time, contains an offset, or is the "
        "head of a ref.",
        f"{__name__}.history:at",
    ),
    CommandEntry(
        "audit",
        "Verify that a table contains each offset range and each data file exactly once.",
        f"{__name__}.audit:audit",
    ),
    CommandEntry(
        "branch",
        "Create a branch at a snapshot of a table, or list, move, and remove branches.",
        f"{__name__}.refs:branch",
    ),
    CommandEntry(
        "diff",
        "Compare two snapshots of a table: count and show the inserted, updated, and deleted rows.",
        f"{__name__}.diff:diff",
    ),
    CommandEntry("dlq", "Manage the dead-letter records that an Iceberg sink stores in a table."),
    CommandEntry(
        "dlq list",
        "Count the records by topic, reason, stage, and state.",
        f"{__name__}.dlq:list_",
    ),
    CommandEntry(
        "dlq delete",
        "Delete records from their table, selected by position, topic, reason, state, or age.",
        f"{__name__}.dlq:delete",
    ),
    CommandEntry(
        "dlq show",
        "Print dead-letter records, one JSON object per line. Binary data is encoded in base64.",
        f"{__name__}.dlq:show",
    ),
    CommandEntry(
        "dlq replay",
        "Have the connector process records again with their original topic, partition, and "
        "offset.",
        f"{__name__}.dlq:replay",
    ),
    CommandEntry(
        "gate",
        "List, publish, or reject the commits of a table that await approval.",
        f"{__name__}.gate:gate",
    ),
    CommandEntry(
        "held",
        "List the schema changes that rows are waiting for.",
        f"{__name__}.schema_changes:schema_changes",
    ),
    CommandEntry(
        "history",
        "List a table's snapshots with their writers, row counts, and source offsets.",
        f"{__name__}.history:history",
    ),
    CommandEntry(
        "load",
        "Load a connector's topics with Spark, exactly once. The connector resumes after the load.",
        f"{__name__}.load:load",
    ),
    CommandEntry(
        "maintain",
        "Compact, expire, and clean up a table according to the connector's configuration and "
        "--set.",
        f"{__name__}.maintain:maintain",
    ),
    CommandEntry(
        "migrate",
        "Review a Java sink's configuration and determine its position.",
        f"{__name__}.migrate:migrate",
    ),
    CommandEntry("pipeline", "Compare the connectors in a file with a worker, and apply the file."),
    CommandEntry(
        "pipeline plan",
        "Show how the connectors on the worker differ from the file. Nothing is changed.",
        f"{__name__}.pipeline:plan",
    ),
    CommandEntry(
        "pipeline apply",
        "Create, change, and delete connectors as shown by `plan`, and wait until all tasks run.",
        f"{__name__}.pipeline:apply",
    ),
    CommandEntry(
        "pipeline destroy",
        "Delete the connectors that the pipeline manages.",
        f"{__name__}.pipeline:destroy",
    ),
    CommandEntry(
        "pipeline status",
        "Show the states of the pipeline's connectors and tasks, with reasons for problems.",
        f"{__name__}.pipeline:status",
    ),
    CommandEntry(
        "pipeline schema",
        "Print the JSON schema of pipeline files, for editors.",
        f"{__name__}.pipeline:schema",
    ),
    CommandEntry(
        "rebuild",
        "Rebuild the rows of a table on a branch, and compare them with the table.",
        f"{__name__}.rebuild:rebuild",
    ),
    CommandEntry(
        "rewind",
        "Reset tables to an earlier state, together with the connector's positions in their "
        "topics.",
        f"{__name__}.rewind:rewind",
    ),
    CommandEntry(
        "rollback",
        "Reset a table to an earlier snapshot of its history.",
        f"{__name__}.rollback:rollback",
    ),
    CommandEntry(
        "routes",
        "Show the tables that topics are routed to, and their settings.",
        f"{__name__}.routes:routes",
    ),
    CommandEntry(
        "scan",
        "Show how many files and rows a query skips because of partitions, bounds, and "
        "bloom filters.",
        f"{__name__}.scan:scan",
    ),
    CommandEntry(
        "schema-changes",
        "List the schema changes that rows are waiting for.",
        f"{__name__}.schema_changes:schema_changes",
    ),
    CommandEntry(
        "tag",
        "Tag a snapshot to protect it from expiration, or list, move, and remove tags.",
        f"{__name__}.refs:tag",
    ),
    CommandEntry(
        "try",
        "Read, convert, transform, and route records, and show the resulting rows of each table.",
        f"{__name__}.try_records:try_records",
    ),
)
