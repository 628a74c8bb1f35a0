"""Config keys for the Iceberg sink: those of both Java sinks (Apache, Tabular), and extensions."""

from __future__ import annotations

OWN_PREFIX = "iceberg."
CATALOG_PREFIX = "iceberg.catalog."
HADOOP_PREFIX = "iceberg.hadoop."
KAFKA_PREFIX = "iceberg.kafka."
SPARK_PREFIX = "iceberg.spark."
AUTO_CREATE_PREFIX = "iceberg.tables.auto-create-props."
WRITE_PREFIXES = (
    "iceberg.table.write-props.",
    "iceberg.tables.write-props.",
)  # the second takes precedence
TABLE_PREFIX = "iceberg.table."
TABLES = "iceberg.tables"
DYNAMIC = "iceberg.tables.dynamic-enabled"
ROUTE_FIELD = "iceberg.tables.route-field"
COMMIT_BRANCH = "iceberg.tables.default-commit-branch"
ID_COLUMNS = "iceberg.tables.default-id-columns"
PARTITION_BY = "iceberg.tables.default-partition-by"
TAGS = "iceberg.ext.tags"
MAINTENANCE_PREFIX = "iceberg.ext.maintenance."
CYCLE_SQL = "iceberg.ext.cycle-sql"
CYCLE_TRANSFORM = "iceberg.ext.cycle-transform"
AGGREGATE_PREFIX = "iceberg.ext.cycle-aggregate."
STOP_AT = "iceberg.ext.stop-at"
EXPECT_PREFIX = "iceberg.ext.expect."
CDC_FIELD = "iceberg.tables.cdc-field"
UPSERT_MODE = "iceberg.tables.upsert-mode-enabled"
AUTO_CREATE = "iceberg.tables.auto-create-enabled"
EVOLVE_SCHEMA = "iceberg.tables.evolve-schema-enabled"
CATALOG_NAME = "iceberg.catalog"
HADOOP_CONF_DIR = "iceberg.hadoop-conf-dir"
CONTROL_GROUP = "iceberg.control.group-id"
CONNECT_GROUP = "iceberg.connect.group-id"
COMMIT_INTERVAL = "iceberg.control.commit.interval-ms"
COMMIT_TIMEOUT = "iceberg.control.commit.timeout-ms"
COMMIT_THREADS = "iceberg.control.commit.threads"
COMMIT_MAX_FAILURES = "iceberg.control.commit.max-consecutive-failures"
ATTEMPT_TIMEOUT = "iceberg.ext.commit-attempt-timeout-ms"
WRITE_MODE = "iceberg.ext.write-mode"
COMMIT_ENGINE = "iceberg.ext.commit-engine"
TOPIC_TO_TABLE = "iceberg.ext.topic-to-table"
ONLY_TABLES = "iceberg.ext.only-tables"
EVOLVE_ADD = "iceberg.ext.evolution.add-column"
EVOLVE_WIDEN = "iceberg.ext.evolution.widen"
EVOLVE_OPTIONAL = "iceberg.ext.evolution.make-optional"
EVOLVE_RENAME = "iceberg.ext.evolution.rename"
EVOLVE_PARTITIONS = "iceberg.ext.evolution.partition-by"
EVOLVE_INCOMPATIBLE = "iceberg.ext.evolution.incompatible"
LOGICAL_TYPES = "iceberg.ext.logical-types"
JSON_TYPE = "iceberg.ext.json-type"
ORDERING_COLUMNS = "iceberg.ext.ordering-columns"
UNAVAILABLE_VALUE = "iceberg.ext.unavailable-value"
UNKNOWN_VALUE = "iceberg.ext.unknown-value"
ENVELOPE = "iceberg.ext.envelope"
SNAPSHOT_EVENTS = "iceberg.ext.snapshot-events"
CHANGELOG_SUFFIX = "iceberg.ext.changelog-suffix"
FAIL_AFTER_WAITING = "iceberg.ext.fail-after-waiting-ms"
MAX_STAGED_BYTES = "iceberg.ext.max-staged-bytes"
TARGET_FILE_SIZE = "iceberg.ext.target-file-size-bytes"
OPENLINEAGE_URL = "iceberg.ext.openlineage.url"
OPENLINEAGE_FILE = "iceberg.ext.openlineage.file"
NOTICES_WEBHOOK = "iceberg.ext.notices.webhook"
DEAD_LETTER_TABLE = "errors.deadletterqueue.iceberg.table"
REPLAY_TOPIC = "errors.deadletterqueue.iceberg.replay.topic"
# prefixes of keys that are defined by Iceberg, Hadoop, Kafka, Spark, or the user
FREE_PREFIXES = (
    CATALOG_PREFIX,
    HADOOP_PREFIX,
    KAFKA_PREFIX,
    SPARK_PREFIX,
    AUTO_CREATE_PREFIX,
    EXPECT_PREFIX,
    AGGREGATE_PREFIX,
    *WRITE_PREFIXES,
)
