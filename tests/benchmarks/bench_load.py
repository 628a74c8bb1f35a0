"""Events per CPU second of `connect-py load`, warm, on this machine and on clusters of workers with
one core each.

    python tests/benchmarks/bench_load.py --events 10000000 --keys 2000000
    python tests/benchmarks/bench_load.py --events 2000000 --masters
        cluster:1,cluster:2,cluster:4

A topic of eight partitions is loaded into an upsert table and an append table. The CPU time
includes all processes of the load and of the cluster, from the end of the second step to the end of
the last step: each step is read while the previous step is committed. On a cluster, `driver` is the
share of the command and its driver. Tables are compared with the produced events. `MB` is the
proportional size of the command and its descendants at the end of a step.
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
from pathlib import Path
from typing import Any

from bench_end_to_end import discard
from exactly_once_events import (
    check_appends,
    check_upserts,
    connector_config,
    expected_appends,
    expected_upserts,
    load,
)
from lakehouse import Lakehouse
from loaded_topics import MODES
from process_watch import ProcessWatch
from results import DEFAULT_FILE, keep, machine_microseconds, print_table
from spark_elsewhere import StandaloneCluster

from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.spark_environment import spark_environment

PARTITIONS = 8
TOPIC = "orders"
COMMAND = Path(sys.executable).with_name("connect-py")


def run(
    connector: Path, servers: str, master: str, cluster: Sequence[int], step_rows: int
) -> dict[str, Any]:
    """Run one load; measure offsets and CPU seconds from the end of its second step to its last
    step.
    """
    words = [
        str(COMMAND),
        "load",
        str(connector),
        "--bootstrap-server",
        servers,
        "--master",
        master,
    ]
    started = time.monotonic()
    with subprocess.Popen(
        [*words, "--step-rows", str(step_rows)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        watches = [ProcessWatch(pid) for pid in (process.pid, *cluster)]
        looks: list[tuple[int, float, float]] = []
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("step "):
                driver, *others = (watch.look(memory=True) for watch in watches)
                offsets = int(line.split(":")[1].split(" of ")[0].replace(",", ""))
                looks.append((offsets, driver + sum(others), driver))
        if process.wait() != 0 or len(looks) < 3:
            raise SystemExit("".join(said))
    (first, before, of_driver), (last, after, driver) = looks[1], looks[-1]
    return {
        "offsets": last - first,
        "cpu": after - before,
        "rate": (last - first) / (after - before),
        "driver": driver - of_driver,
        "seconds": time.monotonic() - started,
        "MB": watches[0].peak_total_mb,
    }


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--keys", type=int, default=80_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--masters", default="local[2],cluster")
    parser.add_argument(
        "--json", type=Path, default=DEFAULT_FILE, help="file that JSON lines are appended to"
    )
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="connect-py-bench-"))
    machine, rows = machine_microseconds(), []
    environment = spark_environment()
    try:
        with KafkaBroker() as broker:
            servers = broker.bootstrap_servers
            load(servers, TOPIC, "json", options.events, options.keys, 1e6, PARTITIONS)
            for number, place in enumerate(options.masters.split(",")):
                for mode in MODES:
                    with ExitStack() as stack:
                        master, cluster = place, list[int]()
                        if place.startswith("cluster"):
                            workers = int(place.partition(":")[2] or 2)
                            home = folder / f"{number}-{mode}-spark"
                            made = stack.enter_context(
                                StandaloneCluster(home, environment, workers)
                            )
                            master, cluster = made.url, made.pids
                        lake = Lakehouse(folder / f"lake-{number}-{mode}")
                        config = connector_config(
                            TOPIC, "json", mode, "db.orders", "", lake.sink_config()
                        )
                        connector = folder / f"{number}-{mode}.json"
                        connector.write_text(
                            json.dumps({"name": f"sink-{number}-{mode}", "config": config})
                        )
                        found = run(
                            connector, servers, master, cluster, options.events // options.steps
                        )
                        if mode == "upsert":
                            check_upserts(
                                lake.rows("db.orders"),
                                expected_upserts(options.events, options.keys),
                            )
                        else:
                            check_appends(
                                lake.rows("db.orders"),
                                expected_appends(options.events, options.keys),
                            )
                    keep(
                        options.json,
                        "load",
                        {"machine": round(machine, 2), "master": place, "mode": mode, **found},
                    )
                    texts = [
                        f"{found[key]:,.0f}"
                        for key in ("offsets", "rate", "driver", "seconds", "MB")
                    ]
                    rows.append([place, mode, *texts])
    finally:
        discard(folder)
    print(f"{options.events} events, tables exact")
    print_table(
        ["master", "mode", "offsets, warm", "a CPU second", "driver CPU s", "seconds in all", "MB"],
        rows,
    )


if __name__ == "__main__":
    main()
