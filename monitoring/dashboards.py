"""Define the Grafana dashboards and write them to `monitoring/grafana` (`make dashboards`).

With `--check`, nothing is written, and the exit status is 1 if a file differs from its definition.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dashboard_model import (
    Dashboard,
    dashboard_json,
    graph,
    increase,
    maximum,
    or_zero,
    rate,
    row,
    stat,
    table,
    total,
)

FOLDER = Path(__file__).parent / "grafana"

WORKERS = Dashboard(
    "connect-py-workers",
    "connect-py: workers",
    "Workers and their groups, rebalances, and shared services.",
    row("Workers"),
    stat("Reachable workers", "sum(up{worker})"),
    stat("Unreachable workers", or_zero("count(up{worker} == 0)"), red=1),
    stat("Groups", "count(count by (job, group) (connect_py_worker_group{worker}))"),
    stat("Connectors", "sum(kafka_connect_connect_worker_metrics_connector_count{worker})"),
    stat("Tasks", "sum(kafka_connect_connect_worker_metrics_task_count{worker})"),
    stat(
        "Failed tasks",
        or_zero("sum(kafka_connect_connect_worker_metrics_connector_failed_task_count{worker})"),
        red=1,
    ),
    table(
        "Worker groups",
        "connect_py_worker_group{worker}",
        description="The group.id of each worker.",
    ),
    table(
        "Versions",
        'kafka_connect_app_info{worker,version!=""} or kafka_connect_app_info_version_info{worker}',
        description="The version of Kafka Connect with which the worker is compatible.",
    ),
    row("Assignments and rebalances"),
    graph(
        "Tasks by worker",
        "none",
        total("kafka_connect_connect_worker_metrics_task_count{worker}", by="instance"),
        "{{instance}}",
        stacked=True,
    ),
    graph(
        "Connectors by worker",
        "none",
        total("kafka_connect_connect_worker_metrics_connector_count{worker}", by="instance"),
        "{{instance}}",
        stacked=True,
    ),
    graph(
        "Rebalances",
        "none",
        increase(
            "kafka_connect_connect_worker_rebalance_metrics_completed_rebalances_total{worker}"
        ),
        "{{instance}}",
    ),
    graph(
        "Rebalancing",
        "bool_yes_no",
        "kafka_connect_connect_worker_rebalance_metrics_rebalancing{worker}",
        "{{instance}}",
        description="1 while a worker waits for its assignment or starts its connectors and tasks.",
    ),
    graph(
        "Maximum rebalance time",
        "ms",
        "kafka_connect_connect_worker_rebalance_metrics_rebalance_max_time_ms{worker}",
        "{{instance}}",
    ),
    graph(
        "Failed starts of connectors and tasks",
        "none",
        {
            "connectors, {{instance}}": increase(
                "kafka_connect_connect_worker_metrics_connector_startup_failure_total{worker}"
            ),
            "tasks, {{instance}}": increase(
                "kafka_connect_connect_worker_metrics_task_startup_failure_total{worker}"
            ),
        },
    ),
    row("Shared services"),
    graph("Ready processes", "none", "connect_py_service_up{worker}", "{{service}}, {{instance}}"),
    graph(
        "Clients",
        "none",
        "connect_py_service_users{worker}",
        "{{service}}, {{instance}}",
        description="Tasks and connectors that use the service.",
    ),
    graph(
        "Starts",
        "none",
        increase("connect_py_service_starts_total{worker}"),
        "{{service}}, {{instance}}",
    ),
    graph(
        "Unexpected exits",
        "none",
        increase("connect_py_service_deaths_total{worker}"),
        "{{service}}, {{instance}}",
    ),
)

TASKS = Dashboard(
    "connect-py-tasks",
    "connect-py: tasks and connectors",
    "States, waiting times, records, lag, and errors of connectors and tasks.",
    row("States"),
    stat(
        "Running tasks",
        "sum(kafka_connect_connect_worker_metrics_connector_running_task_count{connector})",
    ),
    stat(
        "Paused tasks",
        "sum(kafka_connect_connect_worker_metrics_connector_paused_task_count{connector})",
    ),
    stat(
        "Failed tasks",
        "sum(kafka_connect_connect_worker_metrics_connector_failed_task_count{connector})",
        red=1,
    ),
    stat(
        "Maximum waiting time",
        or_zero("max(connect_py_waiting_seconds{connector})"),
        description="How long a RUNNING connector or task has been unable to make progress.",
        unit="s",
        orange=60,
        red=300,
    ),
    table(
        "Connectors",
        'kafka_connect_connector_metrics{connector,status!=""}'
        " or kafka_connect_connector_metrics_status_info{connector}",
    ),
    graph(
        "Tasks by state",
        "none",
        {
            f"{{{{connector}}}} {state}": total(
                f"kafka_connect_connect_worker_metrics_connector_{state}_task_count{{connector}}",
                by="connector",
            )
            for state in ("running", "paused", "failed", "unassigned", "restarting")
        },
    ),
    graph(
        "Waiting time by reason",
        "s",
        maximum("connect_py_waiting_seconds{connector}", by="connector, task, for"),
        "{{connector}}-{{task}}: {{for}}",
        description=(
            "How long a RUNNING connector (without a task number) or task has been unable to "
            "make progress, and the reason."
        ),
    ),
    graph(
        "Share of time paused",
        "percentunit",
        maximum(
            "kafka_connect_connector_task_metrics_pause_ratio{connector}", by="connector, task"
        ),
        "{{connector}}-{{task}}",
    ),
    row("Records"),
    graph(
        "Sinks: records read",
        "cps",
        total("kafka_connect_sink_task_metrics_sink_record_read_rate{connector}", by="connector"),
        "{{connector}}",
    ),
    graph(
        "Sinks: records put",
        "cps",
        total("kafka_connect_sink_task_metrics_sink_record_send_rate{connector}", by="connector"),
        "{{connector}}",
        description="After conversion and transformations.",
    ),
    graph(
        "Sources: records polled",
        "cps",
        total(
            "kafka_connect_source_task_metrics_source_record_poll_rate{connector}", by="connector"
        ),
        "{{connector}}",
    ),
    graph(
        "Sources: records written",
        "cps",
        total(
            "kafka_connect_source_task_metrics_source_record_write_rate{connector}", by="connector"
        ),
        "{{connector}}",
    ),
    graph(
        "Consumer lag",
        "short",
        total(
            "kafka_consumer_consumer_fetch_manager_metrics_records_lag{consumer}", by="client_id"
        ),
        "{{client_id}}",
        description=(
            "Records that the consumer has not read yet. Consumers with a custom client.id "
            "are not shown."
        ),
    ),
    graph(
        "Consumer lag by topic",
        "short",
        total("kafka_consumer_consumer_fetch_manager_metrics_records_lag{consumer}", by="topic"),
        "{{topic}}",
    ),
    graph(
        "Uncommitted records",
        "short",
        total(
            "kafka_connect_sink_task_metrics_sink_record_active_count{connector}", by="connector"
        ),
        "{{connector}}",
        description="Records that sink tasks have read but not committed yet.",
    ),
    graph(
        "Maximum put time",
        "ms",
        maximum("kafka_connect_sink_task_metrics_put_batch_max_time_ms{connector}", by="connector"),
        "{{connector}}",
    ),
    graph(
        "Maximum offset commit time",
        "ms",
        maximum(
            "kafka_connect_connector_task_metrics_offset_commit_max_time_ms{connector}",
            by="connector",
        ),
        "{{connector}}",
    ),
    graph(
        "Offset commit failures",
        "percentunit",
        maximum(
            "kafka_connect_connector_task_metrics_offset_commit_failure_percentage{connector}",
            by="connector",
        ),
        "{{connector}}",
    ),
    row("Errors"),
    graph(
        "Dead-letter records",
        "short",
        increase("connect_py_cdc_dlq_total{connector}", by="connector, topic, reason"),
        "{{connector}}, {{topic}}: {{reason}}",
    ),
    graph(
        "Dead-letter records since the task started",
        "short",
        total("connect_py_cdc_dlq_total{connector}", by="connector, topic, reason"),
        "{{connector}}, {{topic}}: {{reason}}",
    ),
    graph(
        "Skipped records",
        "short",
        increase(
            "kafka_connect_task_error_metrics_total_records_skipped{connector}", by="connector"
        ),
        "{{connector}}",
    ),
    graph(
        "Errors, failures, and retries",
        "short",
        {
            "{{connector}} errors": increase(
                "kafka_connect_task_error_metrics_total_record_errors{connector}", by="connector"
            ),
            "{{connector}} failures": increase(
                "kafka_connect_task_error_metrics_total_record_failures{connector}", by="connector"
            ),
            "{{connector}} retries": increase(
                "kafka_connect_task_error_metrics_total_retries{connector}", by="connector"
            ),
        },
    ),
    graph(
        "Dead-letter topic",
        "short",
        {
            "{{connector}} written": increase(
                "kafka_connect_task_error_metrics_deadletterqueue_produce_requests{connector}",
                by="connector",
            ),
            "{{connector}} failed": increase(
                "kafka_connect_task_error_metrics_deadletterqueue_produce_failures{connector}",
                by="connector",
            ),
        },
    ),
)

ICEBERG = Dashboard(
    "connect-py-iceberg",
    "connect-py: Iceberg sink",
    "Rows, commits, freshness, files, and maintenance of the tables of Iceberg sinks.",
    row("Tables"),
    stat(
        "Maximum freshness lag",
        "max(connect_py_iceberg_lag_seconds{table})",
        unit="s",
        orange=900,
        red=3600,
    ),
    stat("Blocked tables", or_zero("sum(connect_py_iceberg_waiting{connector})"), red=1),
    stat(
        "Schema changes awaiting approval",
        or_zero("sum(connect_py_iceberg_held_changes{table})"),
        orange=1,
    ),
    stat(
        "Tables with commits awaiting approval",
        or_zero("sum(connect_py_iceberg_unpublished{table})"),
        orange=1,
    ),
    graph(
        "Freshness lag",
        "s",
        maximum("connect_py_iceberg_lag_seconds{table}", by="connector, table"),
        "{{table}}",
        description="0 while the table contains all changes of its topics.",
    ),
    graph(
        "Time since the last commit",
        "s",
        "time() - "
        + maximum("connect_py_iceberg_last_commit_seconds{table}", by="connector, table"),
        "{{table}}",
        description="A table without changes receives no commits.",
    ),
    graph(
        "Time since the table was last complete",
        "s",
        "time() - "
        + maximum("connect_py_iceberg_valid_through_seconds{table}", by="connector, table"),
        "{{table}}",
        description="Up to 30 seconds for a table without new changes.",
    ),
    graph(
        "Consumer lag",
        "short",
        total(
            "kafka_consumer_consumer_fetch_manager_metrics_records_lag{consumer}", by="client_id"
        ),
        "{{client_id}}",
    ),
    graph(
        "Blocked tables by reason",
        "bool_yes_no",
        maximum("connect_py_iceberg_waiting{connector}", by="connector, table, reason"),
        "{{connector}} {{table}}: {{reason}}",
        description=(
            "begin: the coordinator cannot start. open: the table cannot be loaded, created, "
            "or changed. commit: commits to the table fail."
        ),
    ),
    graph(
        "Staged cycles awaiting their commit",
        "none",
        maximum("connect_py_iceberg_staged_cycles{connector}", by="connector, task"),
        "{{connector}}-{{task}}",
        description="The task pauses while there are more than iceberg.ext.max-staged-cycles.",
    ),
    row("Rows and commits"),
    graph(
        "Added rows",
        "cps",
        rate("connect_py_iceberg_added_rows_total{table}", by="connector, table"),
        "{{table}}",
    ),
    graph(
        "Replaced and deleted rows",
        "cps",
        rate("connect_py_iceberg_replaced_rows_total{table}", by="connector, table"),
        "{{table}}",
    ),
    graph(
        "Commits by engine and outcome",
        "none",
        increase("connect_py_iceberg_commits_total{table}", by="connector, engine, outcome"),
        "{{connector}} {{engine}}: {{outcome}}",
        stacked=True,
    ),
    graph(
        "Unsuccessful commits",
        "none",
        increase(
            'connect_py_iceberg_commits_total{table,outcome!="committed"}',
            by="connector, table, outcome",
        ),
        "{{table}}: {{outcome}}",
    ),
    graph(
        "Mean commit duration",
        "s",
        rate("connect_py_iceberg_commit_seconds_total{table}", by="connector, table, engine")
        + " / "
        + rate("connect_py_iceberg_commits_total{table}", by="connector, table, engine"),
        "{{table}} {{engine}}",
    ),
    graph(
        "Commits by engine and reason for the choice",
        "none",
        increase("connect_py_iceberg_engine_choices_total{table}", by="connector, engine, reason"),
        "{{connector}} {{engine}}: {{reason}}",
        stacked=True,
    ),
    graph(
        "Skipped older changes and unknown values",
        "short",
        {
            "{{table}} older changes": increase(
                "connect_py_iceberg_older_changes_total{table}", by="connector, table"
            ),
            "{{table}} unknown values": increase(
                "connect_py_iceberg_unknown_values_total{table}", by="connector, table"
            ),
        },
    ),
    graph(
        "Coordinator starts",
        "none",
        increase("connect_py_iceberg_coordinator_beginnings_total{connector}", by="connector"),
        "{{connector}}",
    ),
    row("Bad rows and schema changes"),
    graph(
        "Dead-letter records",
        "short",
        increase("connect_py_cdc_dlq_total{connector}", by="connector, topic, reason"),
        "{{topic}}: {{reason}}",
    ),
    graph(
        "Rows without a table",
        "short",
        increase("connect_py_iceberg_unrouted_rows_total{connector}", by="connector, topic"),
        "{{topic}}",
    ),
    graph(
        "Rows that failed data quality checks",
        "short",
        increase(
            "connect_py_iceberg_unexpected_rows_total{table}", by="connector, table, expectation"
        ),
        "{{table}}: {{expectation}}",
    ),
    graph(
        "Commits that failed data quality checks",
        "none",
        increase(
            "connect_py_iceberg_expectations_failed_total{table}",
            by="connector, table, expectation",
        ),
        "{{table}}: {{expectation}}",
    ),
    graph(
        "Schema changes",
        "none",
        increase("connect_py_iceberg_schema_changes_total{table}", by="connector, table"),
        "{{table}}",
    ),
    graph(
        "Schema changes awaiting approval",
        "bool_yes_no",
        maximum("connect_py_iceberg_held_changes{table}", by="connector, table, change"),
        "{{table}}: {{change}}",
    ),
    row("Files and maintenance"),
    graph(
        "Data files",
        "short",
        maximum("connect_py_iceberg_table_data_files{table}", by="connector, table"),
        "{{table}}",
        description="As of the last measurement by table maintenance.",
    ),
    graph(
        "Delete files",
        "short",
        maximum("connect_py_iceberg_table_delete_files{table}", by="connector, table"),
        "{{table}}",
        description=(
            "As of the last measurement by table maintenance. Each deletion vector counts as "
            "a file."
        ),
    ),
    graph(
        "Snapshots",
        "short",
        maximum("connect_py_iceberg_table_snapshots{table}", by="connector, table"),
        "{{table}}",
        description="As of the last measurement by table maintenance.",
    ),
    graph(
        "Data files added by commits",
        "short",
        increase("connect_py_iceberg_added_files_total{table}", by="connector, table"),
        "{{table}}",
    ),
    graph(
        "Maintenance by action and outcome",
        "none",
        increase("connect_py_iceberg_maintenance_total{table}", by="connector, action, outcome"),
        "{{connector}} {{action}}: {{outcome}}",
        stacked=True,
    ),
    graph(
        "Time spent in maintenance",
        "percentunit",
        rate("connect_py_iceberg_maintenance_seconds_total{table}", by="connector, table, action"),
        "{{table}} {{action}}",
        description="Share of time during which the action was running.",
    ),
    row("Notices and bounded connectors"),
    graph(
        "Notices and lineage events",
        "short",
        increase("connect_py_iceberg_messages_total{connector}", by="connector, kind, outcome"),
        "{{connector}} {{kind}}: {{outcome}}",
    ),
    graph(
        "Offsets until the connector stops",
        "short",
        maximum("connect_py_iceberg_stop_at_remaining_offsets{connector}", by="connector"),
        "{{connector}}",
        description="Only for connectors with iceberg.ext.stop-at.",
    ),
    by_table=True,
)

SPARK = Dashboard(
    "connect-py-spark",
    "connect-py: Spark driver",
    "Spark drivers of the workers: processes, requests, unexpected exits, and time in commits.",
    row("Drivers"),
    stat("Ready drivers", "sum(connect_py_service_up{driver})"),
    stat(
        "Workers without a ready driver",
        or_zero(
            "count(connect_py_service_up{driver} == 0 and connect_py_service_users{driver} > 0)"
        ),
        red=1,
    ),
    stat(
        "Unexpected exits in the last day",
        "sum(increase(connect_py_service_deaths_total{driver}[1d]))",
        orange=1,
        red=5,
    ),
    stat(
        "Sessions",
        "sum(connect_py_service_sessions{driver})",
        description="Connections from tasks and connectors to drivers.",
    ),
    graph("Ready processes", "none", "connect_py_service_up{driver}", "{{service}}, {{instance}}"),
    graph("Clients", "none", "connect_py_service_users{driver}", "{{service}}, {{instance}}"),
    graph(
        "Starts and unexpected exits",
        "none",
        {
            "{{service}} started, {{instance}}": increase(
                "connect_py_service_starts_total{driver}"
            ),
            "{{service}} exited, {{instance}}": increase("connect_py_service_deaths_total{driver}"),
        },
    ),
    graph(
        "Driver replacements by connector",
        "none",
        increase("connect_py_iceberg_driver_replacements_total{connector}", by="connector"),
        "{{connector}}",
        description="Drivers that exited unexpectedly while the connector used them.",
    ),
    row("Requests"),
    graph(
        "Requests",
        "reqps",
        rate(
            "connect_py_service_requests_total{driver}", by="service, instance, exported_instance"
        ),
        "{{service}} {{exported_instance}}, {{instance}}",
        description="exported_instance is the number of the process within its worker.",
    ),
    graph(
        "Mean request duration",
        "s",
        rate(
            "connect_py_service_request_seconds_total{driver}",
            by="service, instance, exported_instance",
        )
        + " / "
        + rate(
            "connect_py_service_requests_total{driver}", by="service, instance, exported_instance"
        ),
        "{{service}} {{exported_instance}}, {{instance}}",
    ),
    graph(
        "Concurrent requests",
        "short",
        rate(
            "connect_py_service_request_seconds_total{driver}",
            by="service, instance, exported_instance",
        ),
        "{{service}} {{exported_instance}}, {{instance}}",
        description="Average number of requests in progress, which shows how busy the driver is.",
    ),
    graph(
        "Interrupted requests",
        "none",
        increase(
            "connect_py_service_interrupted_total{driver}",
            by="service, instance, exported_instance",
        ),
        "{{service}} {{exported_instance}}, {{instance}}",
        description="Requests that exceeded their time limit.",
    ),
    row("Commits"),
    graph(
        "Time spent in commits by connector",
        "percentunit",
        rate("connect_py_iceberg_commit_seconds_total{connector}", by="connector"),
        "{{connector}}",
        description="Share of time during which commits of the connector were running.",
        stacked=True,
    ),
    graph(
        "Time spent in commits by engine",
        "percentunit",
        rate("connect_py_iceberg_commit_seconds_total{connector}", by="engine"),
        "{{engine}}",
        stacked=True,
    ),
    graph(
        "Rows added by connector",
        "cps",
        rate("connect_py_iceberg_added_rows_total{connector}", by="connector"),
        "{{connector}}",
    ),
    graph(
        "Time spent in maintenance by connector",
        "percentunit",
        rate("connect_py_iceberg_maintenance_seconds_total{connector}", by="connector"),
        "{{connector}}",
    ),
)

DASHBOARDS = (WORKERS, TASKS, ICEBERG, SPARK)


def main() -> int:
    """Write all dashboards. With `--check`, only report the files that are out of date."""
    stale = []
    for dashboard in DASHBOARDS:
        path = FOLDER / f"{dashboard.uid}.json"
        content = dashboard_json(dashboard)
        if "--check" not in sys.argv:
            path.write_text(content)
        elif not path.exists() or path.read_text() != content:
            stale.append(path.name)
    if stale:
        print(f"out of date, run `make dashboards`: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
