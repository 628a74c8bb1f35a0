"""The image, built of Debian's packages, and a worker and a connector that run from it. Needs
root."""

from __future__ import annotations

import json
import os
import signal
import socket
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from container_image import BASE, BuiltImage, first_process, kill, run, stop

from connect_py.embedded.broker import KafkaBroker

COMPILERS = ("cc", "gcc", "g++", "clang", "make", "cargo", "rustc", "javac", "go", "git")
START_SECONDS, COMMIT_SECONDS, STOP_SECONDS = 90, 120, 45
pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    tmp_path.chmod(0o755)
    return tmp_path / "scratch"


def wait_until(condition: Callable[[], bool], seconds: float, what: str, log: Path) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}\n{log.read_text()[-4000:]}"
        time.sleep(0.5)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_worker_and_connector_run_from_the_image(
    container_image: BuiltImage, scratch: Path, tmp_path: Path
) -> None:
    port = free_port()
    log = tmp_path / "worker.log"
    url = f"http://127.0.0.1:{port}"
    with KafkaBroker(auto_create_topics=True) as broker:
        environment = {
            "CONNECT_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "CONNECT_LISTENERS": url,
            "CONNECT_PY_HEALTH_URL": f"{url}/health",
            **{
                f"CONNECT_{topic}_STORAGE_REPLICATION_FACTOR": "1"
                for topic in ("CONFIG", "OFFSET", "STATUS")
            },
        }
        with log.open("wb") as output:
            container = container_image.start(
                scratch=scratch, environment=environment, output=output
            )
        try:
            health = container_image.config["Healthcheck"]["Test"]
            assert health[0] == "CMD"

            def healthy() -> bool:
                asked = {"scratch": scratch, "environment": environment, "entry": False}
                return container_image.run(health[1:], **asked)[0] == 0

            wait_until(healthy, START_SECONDS, "the health check", log)
            assert first_process(container)
            # The table is in the container's /tmp, the only folder that can be written.
            sink = {
                "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
                "topics": "people",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                "iceberg.tables": "demo.people",
                "iceberg.tables.auto-create-enabled": "true",
                "iceberg.catalog.type": "jdbc",
                "iceberg.catalog.uri": "jdbc:sqlite:/tmp/people.db",
                "iceberg.catalog.jdbc.schema-version": "V1",
                "iceberg.catalog.warehouse": "file:///tmp/people",
                "iceberg.control.commit.interval-ms": "1000",
            }
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            producer.produce("people", json.dumps({"id": 1, "name": "Ada"}))
            assert producer.flush(30) == 0
            httpx.put(f"{url}/connectors/people/config", json=sink, timeout=60).raise_for_status()
            read = (
                "from pyiceberg.catalog import load_catalog; "
                "print(load_catalog('iceberg', type='sql', uri='sqlite:////tmp/people.db', warehouse='file:///tmp/people')"
                ".load_table('demo.people').scan().to_arrow().to_pylist())"
            )

            def landed() -> bool:
                shown = container_image.run(
                    ["python", "-W", "ignore", "-c", read], scratch=scratch
                )[1]
                return "{'id': 1, 'name': 'Ada'}" in shown

            wait_until(landed, COMMIT_SECONDS, "the row", log)
            assert stop(container, STOP_SECONDS) == 0
        finally:
            kill(container)
    assert "Kafka Connect started" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_image_has_no_compiler_and_no_root_user(container_image: BuiltImage, scratch: Path) -> None:
    asked = "; ".join(f"command -v {name} && echo {name} found" for name in COMPILERS)
    assert container_image.run(["sh", "-c", f"{asked}; id -u"], scratch=scratch) == (0, "10001\n")
    assert container_image.user == "10001:10001"
    written = "touch /etc/x /opt/x /usr/x /var/x /x 2>&1 | grep -c 'Read-only file system'"
    assert container_image.run(["sh", "-c", written], scratch=scratch)[1] == "5\n"
    assert list(container_image.config["Volumes"]) == ["/tmp"]


def test_image_keeps_what_was_prepared_for_spark(
    container_image: BuiltImage, scratch: Path
) -> None:
    """The class archive matches the jars in the image, and the jars match the locks."""
    program = (
        "from connect_py.embedded.spark_environment import spark_archive, spark_environment; from "
        "connect_py.embedded.jar_lock import JarLock; print(spark_archive().path.exists(), "
        "[JarLock.shipped(n).fetched for n in ('spark', 's3', 'spark-kafka')]); "
        "spark_environment()"
    )
    assert container_image.run(["python", "-c", program], scratch=scratch) == (
        0,
        "True [True, True, True]\n",
    )


def test_bill_of_materials_names_packages_and_jars(container_image: BuiltImage) -> None:
    bill = json.loads((container_image.files / "usr/share/connect-py/sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    named = {component.get("purl", "").split("@")[0] for component in bill["components"]}
    assert {
        "pkg:pypi/pyspark",
        "pkg:maven/org.apache.iceberg/iceberg-spark-runtime-4.1_2.13",
        "pkg:maven/org.apache.iceberg/iceberg-aws-bundle",
        "pkg:deb/debian/openjdk-17-jre-headless",
    } <= named
    assert "pkg:deb/debian/gcc" not in named
    jars = [component for component in bill["components"] if component["name"] == "spark-core_2.13"]
    assert len(jars) == 1


def test_container_without_brokers_says_what_is_missing(
    container_image: BuiltImage, scratch: Path
) -> None:
    status, said = container_image.run([], scratch=scratch)
    assert status == 1
    assert "set CONNECT_BOOTSTRAP_SERVERS" in said
    assert container_image.run(["connect-py", "--version"], scratch=scratch)[1].startswith(
        "connect-py "
    )


def test_orphans_in_a_container_do_not_stay(container_image: BuiltImage, scratch: Path) -> None:
    """The first process collects those whose parent ended."""
    program = (
        "(sleep 0.2 &) ; sleep 1; ps=0; for s in /proc/[0-9]*/status; do grep -q 'State:.Z' "
        "$s && ps=1; done; echo $ps"
    )
    assert container_image.run(["sh", "-c", program], scratch=scratch) == (0, "0\n")


def test_signal_during_the_start_ends_the_container(
    container_image: BuiltImage, scratch: Path, tmp_path: Path
) -> None:
    with (tmp_path / "log").open("wb") as output:
        environment = {"CONNECT_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}"}
        container = container_image.start(scratch=scratch, environment=environment, output=output)
    try:
        time.sleep(3)
        os.kill(first_process(container), signal.SIGTERM)
        assert container.wait(STOP_SECONDS) in (0, 2, 143)
    finally:
        kill(container)


def member(archive: tarfile.TarFile, name: str) -> Any:
    found = archive.extractfile(name)
    assert found is not None
    return json.load(found)


def test_release_packs_an_image_with_its_health_check(
    container_image: BuiltImage,
    release: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Uses buildah with a small recipe; the real one takes as long as the image of these tests."""
    (tmp_path / "docker").mkdir()
    recipe = (
        'ARG BASE\nFROM ${BASE}\nCOPY LICENSE /LICENSE\nHEALTHCHECK CMD ["connect-py-health"]\n'
    )
    (tmp_path / "docker" / "Dockerfile").write_text(recipe)
    (tmp_path / "LICENSE").write_text("free")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "_engine_answers", lambda: False)
    for name, value in {**container_image.storage, "BASE": BASE}.items():
        monkeypatch.setenv(name, value)
    try:
        assert list(release.make_image(tmp_path, "9.9.9")) == []
    finally:
        run(["buildah", "rmi", "--force", "connect-py:9.9.9"], 60)
    with tarfile.open(tmp_path / "connect-py-9.9.9-image.tar") as archive:
        (manifest,) = member(archive, "manifest.json")
        described = member(archive, manifest["Config"])
    # docker shows it as connect-py:9.9.9
    assert "docker.io/library/connect-py:9.9.9" in manifest["RepoTags"]
    assert described["config"]["Healthcheck"]["Test"] == ["CMD", "connect-py-health"]
