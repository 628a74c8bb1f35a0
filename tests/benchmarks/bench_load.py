"""Events per CPU second of `connect-py load`, warm, on this machine and on a cluster of two workers.

    python tests/benchmarks/bench_load.py --events 10000000 --keys 2000000

A topic of eight partitions goes into an upsert and into an append table. The CPU time is that of all processes of the
load, and of the cluster's, from the end of the second step to the end of the last one: each step is read while the one
before is committed. Tables are compared with what was produced. `driver` is the largest size of the driver's processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from bench_end_to_end import discard
from confluent_kafka.admin import AdminClient, NewTopic
from exactly_once_events import check_appends, check_upserts, connector_config, expected_appends, expected_upserts
from lakehouse import Lakehouse
from loaded_topics import HERE, MODES
from results import DEFAULT_FILE, keep, machine_microseconds, print_table
from spark_elsewhere import StandaloneCluster

from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.spark_environment import spark_environment

PARTITIONS = 8
TOPIC = "orders"
COMMAND = Path(sys.executable).with_name("connect-py")


@dataclass(slots=True)
class Usage:
    """CPU seconds and sizes of process trees; what ended counts as it was seen last."""

    roots: Sequence[int]
    driver: int
    seconds: dict[tuple[int, float], float]
    driver_bytes: int = 0

    def look(self) -> float:
        driver_bytes = 0
        for root in self.roots:
            for each in _tree(root):
                try:
                    times = each.cpu_times()
                    self.seconds[each.pid, each.create_time()] = times.user + times.system
                    if root == self.driver and "pyspark.daemon" not in " ".join(each.cmdline()):
                        driver_bytes += each.memory_info().rss
                except psutil.Error:
                    continue
        self.driver_bytes = max(self.driver_bytes, driver_bytes)
        return sum(self.seconds.values())


def _tree(root: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def produce(servers: str, events: int, keys: int) -> None:
    """Fill the topic."""
    command = [
        sys.executable, str(HERE / "cdc_load.py"), "--bootstrap", servers, "--topic", TOPIC, "--partitions",
        str(PARTITIONS), "--format", "json", "-n", str(events), "--keys", str(keys), "--tombstones",
    ]  # fmt: skip
    admin = AdminClient({"bootstrap.servers": servers})  # its answers come while it lives
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run(connector: Path, servers: str, master: str, cluster: Sequence[int], step_rows: int) -> dict[str, Any]:
    """One load; offsets and CPU seconds between the end of its second step and that of its last one."""
    words = [str(COMMAND), "load", str(connector), "--bootstrap-server", servers, "--master", master]
    started = time.monotonic()
    with subprocess.Popen(
        [*words, "--step-rows", str(step_rows)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        usage = Usage([process.pid, *cluster], process.pid, {})
        looks: list[tuple[int, float]] = []
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("step "):
                looks.append((int(line.split(":")[1].split(" of ")[0].replace(",", "")), usage.look()))
        if process.wait() != 0 or len(looks) < 3:
            raise SystemExit("".join(said))
    (first, before), (last, after) = looks[1], looks[-1]
    return {
        "offsets": last - first, "cpu": after - before, "rate": (last - first) / (after - before),
        "seconds": time.monotonic() - started, "driver MB": usage.driver_bytes / 1e6,
    }  # fmt: skip


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--keys", type=int, default=80_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--masters", default="local[2],cluster")
    parser.add_argument("--json", type=Path, default=DEFAULT_FILE, help="file that JSON lines are appended to")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="connect-py-bench-"))
    machine, rows = machine_microseconds(), []
    environment = spark_environment()
    try:
        with KafkaBroker() as broker:
            servers = broker.bootstrap_servers
            produce(servers, options.events, options.keys)
            for number, place in enumerate(options.masters.split(",")):
                for mode in MODES:
                    with ExitStack() as stack:
                        master, cluster = place, list[int]()
                        if place == "cluster":
                            made = stack.enter_context(StandaloneCluster(folder / f"{mode}-spark", environment))
                            master, cluster = made.url, made.pids
                        lake = Lakehouse(folder / f"lake-{number}-{mode}")
                        config = connector_config(TOPIC, "json", mode, "db.orders", "", lake.sink_config())
                        connector = folder / f"{number}-{mode}.json"
                        connector.write_text(json.dumps({"name": f"sink-{number}-{mode}", "config": config}))
                        found = run(connector, servers, master, cluster, options.events // options.steps)
                        if mode == "upsert":
                            check_upserts(lake.rows("db.orders"), expected_upserts(options.events, options.keys))
                        else:
                            check_appends(lake.rows("db.orders"), expected_appends(options.events, options.keys))
                    keep(options.json, "load", {"machine": round(machine, 2), "master": place, "mode": mode, **found})
                    texts = [f"{found[key]:,.0f}" for key in ("offsets", "rate", "seconds", "driver MB")]
                    rows.append([place, mode, *texts])
    finally:
        discard(folder)
    print(f"{options.events} events, tables exact")
    print_table(["master", "mode", "offsets, warm", "a CPU second", "seconds in all", "driver MB"], rows)


if __name__ == "__main__":
    main()
