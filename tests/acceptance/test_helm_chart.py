"""The Helm chart: rendered by Helm, compared with Kubernetes's own schemas. Builds Helm of Go's
modules, once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import javaproperties
import pytest
import yaml
from container_image import run

from connect_py.config.worker_config import DistributedConfig
from connect_py.embedded.cache_directory import cache_directory

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "connect-py"
HELM, SCHEMAS = "v3.19.0", "kubernetes-validate==1.37.0"
KUBERNETES = ("1.30", "1.37")
BUILD_SECONDS, INSTALL_SECONDS = 580, 120
CHECK = (
    "import sys, yaml, kubernetes_validate as k\n"
    "for text in yaml.safe_load_all(sys.stdin):\n"
    "    if text and text['kind'] != 'PodMonitor': k.validate(text, sys.argv[1], strict=True)\n"
)
BROKERS = {"properties": {"bootstrap.servers": "kafka:9092"}}
EVERYTHING: dict[str, Any] = {
    "replicas": 3,
    "image": {
        "repository": "registry.example.com/connect-py",
        "tag": "1.2.3",
        "pullSecrets": [{"name": "registry"}],
    },
    "properties": {
        "bootstrap.servers": "kafka:9092",
        "admin.listeners": "http://:8084",
        "topic.creation.enable": True,
        "offset.flush.interval.ms": 30_000_000,
        "sasl.jaas.config": 'org.example.Module required user="a\\b" '
        'password="${directory:/run/secrets/user:key}";',
    },
    "secrets": ["user", "lake-cluster-ca-cert"],
    "env": [{"name": "AWS_REGION", "value": "eu-central-1"}],
    "rest": {"scheme": "HTTPS"},
    "probes": {"port": 8084},
    "serviceAccount": {
        "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/lake"}
    },
    "podMonitor": {"enabled": True, "labels": {"release": "monitoring"}},
    "networkPolicy": {
        "enabled": True,
        "from": [{"podSelector": {"matchLabels": {"app": "console"}}}],
    },
    "podLabels": {"team": "data"},
    "podAnnotations": {"note": "x"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "data", "operator": "Exists"}],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {},
        }
    ],
}
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def helm() -> Path:
    folder = cache_directory() / "programs" / f"helm-{HELM}"
    if not (folder / "helm").exists():
        assert shutil.which("go") is not None, "this test needs Go, of which it builds Helm"
        environment = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
        run(["go", "install", f"helm.sh/helm/v3/cmd/helm@{HELM}"], BUILD_SECONDS, environment)
    return folder / "helm"


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", folder, SCHEMAS],
        INSTALL_SECONDS,
    )
    return folder


def render(
    helm: Path, folder: Path, values: Mapping[str, Any], version: str = KUBERNETES[-1]
) -> subprocess.CompletedProcess[str]:
    """Render for a version of Kubernetes: a Helm that is built of modules assumes 1.20, which the
    chart refuses."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return subprocess.run(
        [helm, "template", "lake", CHART, "-n", "data", "-f", file, "--kube-version", version],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def objects(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text) if each
    }


@pytest.mark.parametrize("values", [BROKERS, EVERYTHING], ids=["default", "everything"])
@pytest.mark.parametrize("version", KUBERNETES)
def test_objects_of_the_chart_fit_the_schemas(
    helm: Path, schemas: Path, tmp_path: Path, values: dict[str, Any], version: str
) -> None:
    rendered = render(helm, tmp_path, values, version)
    assert rendered.returncode == 0, rendered.stderr
    command = [sys.executable, "-W", "ignore", "-c", CHECK, version]
    environment = {**os.environ, "PYTHONPATH": str(schemas)}

    def check(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            input=text,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    checked = check(rendered.stdout)
    assert checked.returncode == 0, checked.stderr[-3000:]
    assert check(rendered.stdout.replace("serviceName:", "serviceNam:")).returncode != 0
    file = tmp_path / "values.yaml"
    assert "0 chart(s) failed" in run(
        [helm, "lint", "--strict", CHART, "-f", file, "--kube-version", version], 60
    )


def test_properties_of_the_chart_reach_the_worker_unchanged(helm: Path, tmp_path: Path) -> None:
    found = objects(render(helm, tmp_path, EVERYTHING).stdout)
    properties = javaproperties.loads(
        found["ConfigMap", "lake-connect-py"]["data"]["worker.properties"]
    )
    given = EVERYTHING["properties"]
    assert properties["sasl.jaas.config"] == given["sasl.jaas.config"]
    assert properties["topic.creation.enable"] == "true"
    assert properties["offset.flush.interval.ms"] == "30000000"
    known = {
        key: value
        for key, value in properties.items()
        if not key.startswith(("config.providers", "sasl"))
    }
    assert DistributedConfig.of(known).unknown == ()


def test_pods_of_the_chart_are_restricted_and_reachable(helm: Path, tmp_path: Path) -> None:
    found = objects(render(helm, tmp_path, EVERYTHING).stdout)
    pod = found["StatefulSet", "lake-connect-py"]["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    assert worker["image"] == "registry.example.com/connect-py:1.2.3"
    assert worker["securityContext"]["readOnlyRootFilesystem"] is True
    assert worker["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["securityContext"]["runAsNonRoot"] is True
    named = {variable["name"]: variable.get("value") for variable in worker["env"]}
    assert (
        named["CONNECT_REST_ADVERTISED_HOST_NAME"]
        == "$(POD_NAME).lake-connect-py-workers.$(POD_NAMESPACE).svc"
    )
    mounted = {mount["mountPath"] for mount in worker["volumeMounts"]}
    assert mounted == {
        "/etc/connect-py",
        "/tmp",
        "/run/secrets/user",
        "/run/secrets/lake-cluster-ca-cert",
    }
    assert worker["readinessProbe"]["httpGet"] == {
        "path": "/health",
        "port": 8084,
        "scheme": "HTTP",
    }
    assert {port["name"]: port["containerPort"] for port in worker["ports"]} == {
        "rest": 8083,
        "health": 8084,
    }
    specs = [(key, each["spec"]) for key, each in found.items() if "spec" in each]
    headless = found["Service", "lake-connect-py-workers"]["spec"]
    assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)
    assert {
        service["ports"][0]["appProtocol"] for (kind, _), service in specs if kind == "Service"
    } == {"https"}
    assert (
        found["PodMonitor", "lake-connect-py"]["spec"]["podMetricsEndpoints"][0]["port"] == "health"
    )


def test_chart_refuses_values_that_no_worker_could_use(helm: Path, tmp_path: Path) -> None:
    assert "bootstrap.servers" in render(helm, tmp_path, {}).stderr
    assert "replica" in render(helm, tmp_path, {**BROKERS, "replica": 2}).stderr
    assert "requires kubeVersion" in render(helm, tmp_path, BROKERS, "1.26").stderr
