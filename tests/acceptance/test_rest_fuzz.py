"""Requests generated from the API's description, sent to a real worker: every response must be
expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, Response
from schemathesis.checks import CheckContext
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

SECRET = "open-sesame-4711"
TEXTS = {"connector", "plugin", "logger"}  # in paths
KNOWN = {"connector": "known", "task": 0, "plugin": "FileStreamSink", "logger": "connect_py"}
VALID = {
    "connector.class": "FileStreamSink",
    "topics": "fuzz",
    "file": "/dev/null",
    "x.secret": "${file:SECRETS:it}",
}
# Causes of status 500 in the Java worker: bodies that cannot be bound, and validation that cannot
# run.
JAVAS_500 = re.compile(
    r"Unexpected (character|end-of-input|close marker)|Cannot (invoke|deserialize value|construct "
    r"instance)"
    r"|Unrecognized (field|token)|Illegal (unquoted character|null or empty Level name)|Trailing "
    r"token"
    r"|Non-standard token|Invalid (numeric value|UTF-8 start byte)|Incomplete surrogate "
    r"pair|Document nesting depth"
    r"|org\.apache\.kafka\.connect\.runtime\.rest\.errors\.BadRequestException: |Failed to "
    r"(start|modify|alter|reset) "
    r"|Offset objects should|The value for the 'position' key|Offsets may only contain primitive "
    r"types"
)


@pytest.fixture(scope="module")
def worker(
    kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "secrets.properties").write_text(f"it={SECRET}\n")
    properties = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "producer.sasl.jaas.config": f'x.PlainLoginModule required username="u" '
        f'password="{SECRET}";',
    }
    worker = WorkerProcess(folder, kafka_broker.bootstrap_servers, "rest-fuzz", properties)
    try:
        worker.start()
        worker.put("known", valid(folder))
        worker.wait_for_states("known", "RUNNING", "RUNNING")
        yield worker
    finally:
        worker.close()


def valid(folder: Path) -> dict[str, str]:
    return {
        key: value.replace("SECRETS", str(folder / "secrets.properties"))
        for key, value in VALID.items()
    }


def nothing_unforeseen(context: CheckContext, response: Response, case: Case) -> None:
    """Server errors are the same as in Java, and no response contains code or secrets."""
    text = response.text
    assert "Traceback" not in text
    assert 'File "' not in text
    assert SECRET not in text
    if response.status_code >= 500:
        assert JAVAS_500.match(response.json()["message"] or ""), text


CHECKS = [
    nothing_unforeseen,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def ask(case: Case, worker: WorkerProcess) -> None:
    """Send a request; half of the names exist, and half of the configurations are nearly valid."""
    for name, known in KNOWN.items():
        if len(str(case.path_parameters.get(name, ""))) % 2:
            case.path_parameters[name] = known
    if isinstance(case.body, dict) and len(case.body) % 2 == 0:
        if case.path.endswith(("/config", "/validate")):
            case.body = {**valid(worker.directory), **case.body}
        elif isinstance(case.body.get("config"), dict):
            case.body["config"] = {**valid(worker.directory), **case.body["config"]}
    case.call_and_validate(base_url=worker.url, checks=CHECKS, timeout=100)


def fuzz(worker: WorkerProcess, how: settings) -> None:
    """Ask every operation of the description, `how` often."""
    operations = list(
        schemathesis.openapi.from_url(f"{worker.url}/openapi.json").get_all_operations()
    )
    assert len(operations) > 20
    for operation in (each.ok() for each in operations):
        takes = {parameter.name for parameter in operation.iter_parameters()}
        modes = list(GenerationMode)  # as described, and not
        if takes <= TEXTS and not list(operation.body):
            modes.remove(GenerationMode.NEGATIVE)  # every string is a name
        for mode in modes:

            @how
            @given(case=operation.as_strategy(mode))
            def ask_often(case: Case) -> None:
                ask(case, worker)

            ask_often()


QUIET = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    database=None,
)


@pytest.mark.timeout(300)
def test_made_up_requests_get_no_unforeseen_answer(worker: WorkerProcess) -> None:
    fuzz(worker, settings(QUIET, max_examples=1, derandomize=True))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_made_up_requests_get_no_unforeseen_answer(worker: WorkerProcess) -> None:
    fuzz(worker, settings(QUIET, max_examples=100))


def test_worker_is_healthy_with_a_clean_log_after_fuzzing(worker: WorkerProcess) -> None:
    assert httpx.get(f"{worker.url}/health", timeout=100).status_code == 200
    log = worker.log_path.read_text()
    assert SECRET not in log
    unforeseen = [line for line in log.splitlines() if " ERROR " in line and "(rest." in line]
    assert unforeseen == []


def test_after_all_that_the_front_process_is_small(worker: WorkerProcess) -> None:
    front = psutil.Process(worker.pid)
    assert front.memory_full_info().pss < 80e6
    assert [m.path for m in front.memory_maps() if "arrow" in m.path] == []
