"""The commands of `docker/README.md`, on services that run by the start lines of
`docker/compose.yaml`. Needs root."""

from __future__ import annotations

import re
import shlex
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from compose_hosts import DOCKER, ComposeHosts, compose_hosts
from compose_programs import HEALTH, PROGRAMS
from container_image import BuiltImage

# the first commit on a cluster fetches its jars
START_SECONDS, COMMAND_SECONDS, COMMIT_SECONDS = (120, 180, 240)
# In the order in which `depends_on` has them start.
SERVICES = ("postgres", "kafka", "s3", "bucket", "catalog", "debezium", "worker", "prometheus")
CLUSTER = ("spark", "spark-executors")
# A line of the page, and the block after it unless that has commands as well.
COMMAND = r"^    docker compose exec (\S+) (.+)\n((?:\n    (?!docker).+(?:\n    .+)*)?)"
pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]


@pytest.fixture(scope="module")
def hosts(container_image: BuiltImage) -> Iterator[ComposeHosts]:
    with (
        tempfile.TemporaryDirectory(prefix="connect-py-compose-") as folder,
        compose_hosts(Path(folder), container_image, PROGRAMS) as hosts,
    ):
        for name in SERVICES:
            if name == "bucket":
                hosts.finish(name, COMMAND_SECONDS)
            else:
                hosts.start(name)
                hosts.wait(name, START_SECONDS, HEALTH.get(name))
        yield hosts


def commands(part: str) -> Iterator[tuple[str, list[str], str]]:
    """Service, command and shown output of each `docker compose exec` of a part of the page."""
    page = (DOCKER / "README.md").read_text().partition(f"## {part}")[2].partition("\n## ")[0]
    for match in re.finditer(COMMAND, page, re.MULTILINE):
        yield (
            match[1],
            shlex.split(match[2]),
            "\n".join(line.strip() for line in match[3].strip().splitlines()),
        )


def execute(hosts: ComposeHosts, part: str) -> list[str]:
    """Run the commands of a part, repeating them until they print the expected output. Return the
    output.
    """
    shown = []
    for service, command, expected in commands(part):
        deadline = time.monotonic() + COMMIT_SECONDS
        while True:
            status, said = hosts.execute(service, command, COMMAND_SECONDS)
            if status == 0 and expected in said:
                break
            assert expected, f"{command}: {said}\n{hosts.log_end(service)}"
            assert time.monotonic() < deadline, f"{command}: {said}\n{hosts.log_end('worker')}"
            time.sleep(2)
        shown.append(expected)
    return shown


def test_commands_of_the_readme_land_a_change_of_postgres(hosts: ComposeHosts) -> None:
    shown = execute(hosts, "From Postgres to Iceberg")
    assert len(shown) == 4
    assert shown[-1].splitlines()[0] == "id=1 name=Ada city=Paris"
    orders = hosts.execute("worker", ["python", "/samples/rows.py", "shop.orders"])
    assert "id=100 customer=1 total=12.50" in orders[1]
    scraped = "http://127.0.0.1:9090/api/v1/query?query=connect_py_iceberg_commits_total"
    deadline = time.monotonic() + COMMAND_SECONDS
    while (
        '"table":"shop.customers"' not in hosts.execute("prometheus", ["curl", "-fsS", scraped])[1]
    ):
        assert time.monotonic() < deadline, hosts.log_end("prometheus")
        time.sleep(2)


def test_connector_moves_to_the_spark_cluster_of_compose(hosts: ComposeHosts) -> None:
    for name in CLUSTER:
        hosts.start(name)
    hosts.wait("spark", START_SECONDS, hosts.service("spark")["healthcheck"]["test"][1:])
    assert execute(hosts, "Commits on a Spark cluster") == [""]
    change = ["psql", "-U", "shop", "-c", "UPDATE customers SET city = 'Oslo' WHERE id = 2"]
    assert hosts.execute("postgres", change)[0] == 0
    deadline = time.monotonic() + COMMIT_SECONDS
    while "city=Oslo" not in (
        said := hosts.execute("worker", ["python", "/samples/rows.py", "shop.customers"])[1]
    ):
        assert time.monotonic() < deadline, f"{said}\n{hosts.log_end('worker')}"
        time.sleep(2)
    assert "Launched executor" in hosts.log_end(
        "spark", 400
    ) or "Launching executor" in hosts.log_end("spark", 400)
