"""The files of `docker` and `deploy` fit each other, the worker, and the schemas of the programs
that read them."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import javaproperties
import jsonschema
import pytest
import yaml
from rest_certificates import Authority

from connect_py.config.worker_config import DistributedConfig
from connect_py.kafka.client_config import translate
from connect_py.plugins.plugin_registry import PluginRegistry
from connectors.iceberg.config.worker_defaults import DEFAULTS, with_worker_catalog

ROOT = Path(__file__).parents[2]
DOCKER, CHART = ROOT / "docker", ROOT / "deploy" / "helm" / "connect-py"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
UNIT = ROOT / "deploy" / "systemd" / "connect-py.service"


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((DOCKER / "compose.yaml").read_text()))


def entrypoint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("entrypoint", DOCKER / "entrypoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("variable", "key"),
    [
        ("CONNECT_BOOTSTRAP_SERVERS", "bootstrap.servers"),
        ("CONNECT_CONNECT__PY_LOG_FORMAT", "connect_py.log.format"),
        (
            "CONNECT_CONNECT__PY_DEFAULTS_ICEBERG_CATALOG_IO___IMPL",
            "connect_py.defaults.iceberg.catalog.io-impl",
        ),
    ],
)
def test_variables_name_properties_as_java_images_do(variable: str, key: str) -> None:
    assert entrypoint().key_of(variable) == key


def test_variables_win_over_the_file_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = entrypoint()
    environment = {"CONNECT_GROUP_ID": "lake", "CONNECT_PY_CACHE": "/cache", "HOME": "/tmp"}
    made = program.properties_of({"group.id": "other", "topic": r"shop\.x"}, environment)
    assert made == {"group.id": "lake", "topic": r"shop\.x"}
    for _ in range(2):  # a container that starts again finds the file of its last start
        path = program.write_properties(made)
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("rb") as written:
        assert javaproperties.load(written) == made


@pytest.mark.parametrize("file", ["worker.properties", "compose/worker.properties"])
def test_properties_of_containers_are_known_to_the_worker(file: str) -> None:
    with (DOCKER / file).open("rb") as opened:
        properties = javaproperties.load(opened)
    assert DistributedConfig.of({"bootstrap.servers": "kafka:9092", **properties}).unknown == ()


def test_compose_file_fits_the_schema_of_compose() -> None:
    schema = json.loads((ROOT / "tests" / "fixtures" / "compose" / "compose-spec.json").read_text())
    validator = jsonschema.Draft7Validator(schema)
    assert [
        f"{list(error.path)}: {error.message}" for error in validator.iter_errors(compose())
    ] == []
    wrong = compose()
    wrong["services"]["kafka"]["healthcheck"]["intervall"] = "1s"
    assert not validator.is_valid(wrong)


def test_services_of_compose_refer_to_what_exists() -> None:
    services = compose()["services"]
    volumes = set(compose()["volumes"])
    for name, service in services.items():
        assert re.search(r":v?\d+[\w.]*$", service["image"]), (
            f"{name}: {service['image']} has no exact tag"
        )
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in volumes or (DOCKER / source).resolve().exists(), f"{name}: {source}"
        wanted = service.get("depends_on", {})
        for other, condition in wanted.items() if isinstance(wanted, dict) else ():
            tested = services[other].get("healthcheck", {})
            assert (
                condition["condition"] != "service_healthy" or "test" in tested or other == "worker"
            ), other
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
    assert services["worker"]["image"] == f"connect-py:{VERSION}"


@pytest.mark.parametrize(
    "file", sorted((DOCKER / "connectors").glob("*-sink*.json")), ids=lambda path: path.stem
)
def test_sinks_of_the_shop_are_valid_here(file: Path) -> None:
    """They use the worker's catalog if they do not set one."""
    posted = json.loads(file.read_text())
    with (DOCKER / "compose" / "worker.properties").open("rb") as opened:
        properties = javaproperties.load(opened)
    defaults = {key: value for key, value in properties.items() if key.startswith(DEFAULTS)}
    registry = PluginRegistry.discover()
    connector = registry.load(registry.find_connector(posted["config"]["connector.class"]))()
    config = {
        "name": posted["name"],
        **with_worker_catalog(posted["config"], lambda prefix: defaults),
    }
    assert {
        key: value.errors for key, value in connector.validate(config).items() if value.errors
    } == {}


def test_image_takes_only_what_its_build_copies() -> None:
    """A file that the build copies and that .dockerignore leaves out would end it, on the machine
    of a user."""
    taken = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    text = re.sub(r"\\\n", " ", (DOCKER / "Dockerfile").read_text())
    copied = [
        line.split()
        for line in text.splitlines()
        if line.startswith("COPY") and "--from" not in line
    ]
    sources = {word for words in copied for word in words[1:-1] if not word.startswith("--")}
    assert {source.split("/")[0] for source in sources} == taken
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_chart_and_image_have_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_values_of_the_chart_have_a_schema_for_each(tmp_path: Path) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    assert set(schema["properties"]) - {"global"} == set(values)
    problems = [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(values)]
    assert len(problems) == 1, problems  # bootstrap.servers, which has no default
    values["properties"]["bootstrap.servers"] = "kafka:9092"
    assert jsonschema.Draft7Validator(schema).is_valid(values)
    properties = {key: str(value) for key, value in values["properties"].items()}
    # /run/secrets exists in the image
    properties["config.providers.directory.param.allowed.paths"] = str(tmp_path)
    assert DistributedConfig.of(properties).unknown == ()


def test_systemd_accepts_the_unit_of_a_worker(tmp_path: Path) -> None:
    if (systemd := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / UNIT.name
    unit.write_text(
        UNIT.read_text().replace("/opt/connect-py/bin/connect-distributed", "/bin/true")
    )
    done = subprocess.run(
        [systemd, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("PrivateTmp", "PrivatTmp"))  # it complains at all
    done = subprocess.run(
        [systemd, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "PrivatTmp" in done.stdout + done.stderr


def test_readme_of_the_image_names_each_of_its_files() -> None:
    page = (DOCKER / "README.md").read_text()
    ours = {path.name for path in DOCKER.iterdir()} - {"README.md", "__pycache__"}
    assert [name for name in ours if f"`{name}" not in page] == []


def test_certificates_of_strimzi_reach_kafka_clients(tmp_path: Path) -> None:
    """The properties of the page for Strimzi, with Secrets as Kubernetes mounts them: PEM with line
    ends."""
    authority = Authority.make()
    key, chain = authority.issue("connect-py")
    secrets = {
        "lake-cluster-ca-cert": {"ca.crt": authority.certificate_pem},
        "connect-py": {"user.crt": chain, "user.key": key},
    }
    for name, files in secrets.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    page = (ROOT / "docs" / "how-to" / "strimzi.md").read_text()
    shown = dict(re.findall(r"^      ((?:ssl|security)\.[\w.]+): (.+)$", page, re.MULTILINE))
    assert len(shown) == 6
    values = yaml.safe_load((CHART / "values.yaml").read_text())["properties"]
    properties = {**values, "bootstrap.servers": "lake-kafka-bootstrap:9093", **shown}
    properties = {
        name: value.replace("/run/secrets", str(tmp_path)) for name, value in properties.items()
    }
    client = translate(DistributedConfig.of(properties).props, "consumer")
    assert client["security.protocol"] == "SSL"
    for name, text in (
        ("ssl.ca.pem", authority.certificate_pem),
        ("ssl.certificate.pem", chain),
        ("ssl.key.pem", key),
    ):
        assert str(client[name]).split() == text.split()
