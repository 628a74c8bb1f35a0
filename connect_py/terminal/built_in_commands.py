"""Table of the built-in commands, in the order of the help. Plugins have their own tables."""

from __future__ import annotations

from typing import Final

from connect_py.api.command import CommandEntry

_TERMINAL: Final = "connect_py.terminal"
_CONNECTORS: Final = "connect_py.terminal.connectors_command"
_EMBEDDED: Final = "connect_py.embedded.commands"

BUILT_IN_COMMANDS: Final = (
    CommandEntry(
        "doctor",
        "Check this machine, Kafka, the catalog, and the storage before a worker starts.",
        "connect_py.doctor.doctor_command:doctor",
    ),
    CommandEntry(
        "status",
        "Show a worker and its group's connectors and tasks, with failures and reasons for "
        "waiting.",
        f"{_TERMINAL}.status_command:status",
    ),
    CommandEntry(
        "top",
        "Watch throughput, lag, freshness, and dead-letter records of all connectors and tasks.",
        f"{_TERMINAL}.top_command:top",
    ),
    CommandEntry(
        "worker",
        "Run a worker, like connect-distributed and connect-standalone.",
        "connect_py.worker_command:worker",
    ),
    CommandEntry(
        "quickstart",
        "Run Kafka, a worker, and a demo shop here, and watch its changes arrive in Iceberg.",
        "connect_py.quickstart.quickstart_command:quickstart",
    ),
    CommandEntry(
        "demo",
        "Land a PostgreSQL database in Iceberg with Debezium, all on this machine.",
        "connect_py.demo.demo_command:demo",
    ),
    CommandEntry(
        "java-connect",
        "Run Java's Kafka Connect worker, for connectors written in Java, such as Debezium's.",
        f"{_EMBEDDED}:java_connect",
    ),
    CommandEntry(
        "jars",
        "Download and verify Java libraries for use without a network.",
        f"{_EMBEDDED}:jars",
    ),
    CommandEntry(
        "archives",
        "Create class data archives, which halve the startup time of Kafka and Spark.",
        f"{_EMBEDDED}:archives",
    ),
    CommandEntry(
        "spark-archive",
        "Package this Python environment and connect-py for the executors of a Spark cluster.",
        f"{_EMBEDDED}:spark_archive",
    ),
    CommandEntry(
        "kafka",
        "Run an Apache Kafka broker that only this machine can reach. Read and write topics of "
        "any cluster.",
    ),
    CommandEntry(
        "kafka topics",
        "List topics with their partition, replica, and record counts, or create a topic.",
        f"{_TERMINAL}.kafka_commands:topics",
    ),
    CommandEntry(
        "kafka produce",
        "Write each line as a record. Lines without the key separator are rejected.",
        f"{_TERMINAL}.kafka_commands:produce",
    ),
    CommandEntry(
        "kafka consume",
        "Print the records of a topic, one per line, as the value or as JSON.",
        f"{_TERMINAL}.kafka_commands:consume",
    ),
    CommandEntry(
        "kafka start",
        "Start the broker in the background and print its bootstrap servers.",
        f"{_EMBEDDED}:kafka_start",
    ),
    CommandEntry(
        "kafka stop",
        "Stop the broker. Its topics are retained.",
        f"{_EMBEDDED}:kafka_stop",
    ),
    CommandEntry(
        "connectors",
        "Manage the connectors of a worker group. The exit status is 0 on success; 1 if the "
        "worker refuses the request or a connector fails; 2 if no worker responds, the usage is "
        "wrong, or a state is not reached in time.",
    ),
    CommandEntry("connectors ls", "List all connectors with their states.", f"{_CONNECTORS}:ls"),
    CommandEntry(
        "connectors show",
        "Show the states, topics, and configuration of a connector.",
        f"{_CONNECTORS}:show",
    ),
    CommandEntry(
        "connectors create",
        "Create a connector from a file after the worker has validated it.",
        f"{_CONNECTORS}:create",
    ),
    CommandEntry(
        "connectors pause",
        "Pause connectors. Their tasks retain their partitions but receive no records.",
        f"{_CONNECTORS}:pause",
    ),
    CommandEntry(
        "connectors resume", "Resume paused or stopped connectors.", f"{_CONNECTORS}:resume"
    ),
    CommandEntry(
        "connectors stop",
        "Stop connectors and shut down their tasks. Their offsets can be changed afterward.",
        f"{_CONNECTORS}:stop",
    ),
    CommandEntry(
        "connectors restart", "Restart connectors and their tasks.", f"{_CONNECTORS}:restart"
    ),
    CommandEntry(
        "connectors delete",
        "Delete connectors. Their offsets, topics, and tables are retained.",
        f"{_CONNECTORS}:delete",
    ),
    CommandEntry(
        "connectors offsets",
        "Show the committed offsets of a connector, or change those of a stopped connector.",
        f"{_CONNECTORS}:offsets",
    ),
)
