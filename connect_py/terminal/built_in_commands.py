"""The commands of `connect-py` itself, in the order of its help. Each plugin has its own table."""

from __future__ import annotations

from typing import Final

from connect_py.api.command import CommandEntry

_TERMINAL: Final = "connect_py.terminal"
_CONNECTORS: Final = "connect_py.terminal.connectors_command"
_EMBEDDED: Final = "connect_py.embedded.commands"

BUILT_IN_COMMANDS: Final = (
    CommandEntry(
        "doctor",
        "Check Java, jars, ports, plugins, Kafka, topics, permissions, the catalog, and the "
        "storage before a worker starts.",
        "connect_py.doctor.doctor_command:doctor",
    ),
    CommandEntry(
        "status",
        "Show a worker, and the connectors and tasks of its group, with their failures and the "
        "reasons why they wait.",
        f"{_TERMINAL}.status_command:status",
    ),
    CommandEntry(
        "top",
        "Watch records per second, consumer lag, the time since the last commit, and "
        "dead-letter records of all connectors and tasks.",
        f"{_TERMINAL}.top_command:top",
    ),
    CommandEntry(
        "worker",
        "Run a worker, like connect-distributed and connect-standalone.",
        "connect_py.worker_command:worker",
    ),
    CommandEntry(
        "quickstart",
        "Start everything on this machine and watch the changes of a small shop arrive in Iceberg.",
        "connect_py.quickstart.quickstart_command:quickstart",
    ),
    CommandEntry(
        "demo",
        "Land a PostgreSQL database in Iceberg with Debezium, all on this machine.",
        "connect_py.demo.demo_command:demo",
    ),
    CommandEntry(
        "java-connect",
        "Run Java's Kafka Connect worker, for connectors written in Java such as Debezium's. "
        "Ctrl-C stops it.",
        f"{_EMBEDDED}:java_connect",
    ),
    CommandEntry(
        "jars",
        "Download and verify Java libraries for use without a network.",
        f"{_EMBEDDED}:jars",
    ),
    CommandEntry(
        "archives",
        "Create the class data archives that halve the startup time of Kafka and Spark. Runs "
        "for half a minute, once.",
        f"{_EMBEDDED}:archives",
    ),
    CommandEntry(
        "spark-archive",
        "Pack this Python and connect-py for Spark executors of clusters that do not have them.",
        f"{_EMBEDDED}:spark_archive",
    ),
    CommandEntry(
        "kafka",
        "Run a real Apache Kafka broker on this machine, reachable from this machine only. "
        "Read and write topics of any cluster.",
    ),
    CommandEntry(
        "kafka topics",
        "List topics with their partitions, replicas, and records; or create a topic.",
        f"{_TERMINAL}.kafka_commands:topics",
    ),
    CommandEntry(
        "kafka produce",
        "Write each line as a record. A line without the separator is rejected.",
        f"{_TERMINAL}.kafka_commands:produce",
    ),
    CommandEntry(
        "kafka consume",
        "Print the records of a topic, one per line: the value, or the whole record as JSON. "
        "Offsets of groups do not change.",
        f"{_TERMINAL}.kafka_commands:consume",
    ),
    CommandEntry(
        "kafka start",
        "Start the broker in the background and print its bootstrap servers.",
        f"{_EMBEDDED}:kafka_start",
    ),
    CommandEntry(
        "kafka stop",
        "Stop the broker. Its topics are retained for the next start.",
        f"{_EMBEDDED}:kafka_stop",
    ),
    CommandEntry(
        "connectors",
        "Manage the connectors of a worker group. Exit status 0: done; 1: the worker refused "
        "the request, or a connector failed; 2: no worker answers, wrong usage, or the state "
        "was not reached in time.",
    ),
    CommandEntry("connectors ls", "List all connectors with their states.", f"{_CONNECTORS}:ls"),
    CommandEntry(
        "connectors show",
        "Show the states, topics, and configuration of a connector.",
        f"{_CONNECTORS}:show",
    ),
    CommandEntry(
        "connectors create",
        "Create a connector from a file, after the worker has validated it. Each invalid key is "
        "printed with its error.",
        f"{_CONNECTORS}:create",
    ),
    CommandEntry(
        "connectors pause",
        "Pause connectors. Their tasks keep their partitions and receive no records.",
        f"{_CONNECTORS}:pause",
    ),
    CommandEntry(
        "connectors resume", "Resume paused or stopped connectors.", f"{_CONNECTORS}:resume"
    ),
    CommandEntry(
        "connectors stop",
        "Stop connectors. Their tasks end, and their offsets can be changed.",
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
        "Show the committed offsets of a connector, or set or reset the offsets of a stopped "
        "connector.",
        f"{_CONNECTORS}:offsets",
    ),
)
