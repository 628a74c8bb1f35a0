"""Objects are wired in constructors: no other code assigns their attributes."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import pytest
from foreign_attributes import ModuleAttributes, foreign_assignments

# Modules and packages that assign attributes of other objects, with the reason.
EXCEPTIONS: Mapping[str, str] = {
    "connect_py/api/record.py": "a lazy record becomes a plain one, without a copy",
    "connect_py/converters/json/json_text.py": "an error is stripped of record contents",
    "connect_py/converters/native/": "ctypes: types of native functions",
    "connect_py/converters/protobuf/": "fields of protobuf messages",
    "connect_py/converters/registry/registry_client.py": "the HTTP session of the registry client",
    "connect_py/demo/change_topics.py": "a logger",
    "connect_py/herder/validation/validator.py": "values of a response under construction",
    "connect_py/kafka/client_log.py": "log records",
    "connect_py/log_context.py": "log records, and the context of the process",
    "connect_py/log_output.py": "log records",
    "connect_py/process/": "the name of the main thread, and standard streams",
    "connect_py/plugins/plugin_path.py": "standard output of the scanning process",
    "connect_py/task/": "metrics and counters of a task, updated by its loop",
    "connect_py/terminal/command_line.py": "attributes of functions that Typer reads",
    "connect_py/tls/tls_context.py": "settings of an SSL context",
    "connect_py/worker/child_bootstrap.py": "the name of the main thread",
    "connect_py/worker/connector_process.py": "services of the worker, for plugin instances",
    "connect_py/worker/service_launcher.py": "the arguments of the process",
    "connectors/iceberg/commit/": "progress of a commit attempt, which its steps and rules fill in",
    "connectors/iceberg/driver/": "log records, and callbacks of py4j",
    "connectors/iceberg_tools/maintenance/maintenance_thread.py": "the deadline of the next run",
    "connectors/iceberg/protocol/": "epoch of the progress; fault points of the current thread",
    "connectors/iceberg/staging/table_stager.py": "the schema of a buffer, after the table evolved",
    "connectors/iceberg/task/batch_intake.py": "rows of a poll, and the reason of an error",
    "connectors/iceberg_tools/load/load.py": "requests to the task that performs the load",
    "rest/app.py": "state of the Starlette application",
    "rest/server.py": "shutdown flags of uvicorn",
}

WIRING = """
from dataclasses import dataclass

@dataclass
class Progress:
    offset: int = 0

@dataclass(frozen=True)
class Settings:
    limit: int

class Runner:
    def __init__(self, worker):
        self._worker = worker
        self.state = None
        worker.listener = self

def advance(progress, publisher):
    progress.offset += 1
    publisher.generation, first = 1, 2
    created = Runner(None)
    created.owner = publisher
"""


def test_only_objects_themselves_assign_their_attributes() -> None:
    unexpected = [
        str(assignment)
        for assignment in foreign_assignments()
        if not any(assignment.path.startswith(path) for path in EXCEPTIONS)
    ]
    assert unexpected == [], "pass these values to constructors instead"


@pytest.fixture(scope="module")
def wiring() -> ModuleAttributes:
    module = ModuleAttributes("m.py")
    module.visit(ast.parse(WIRING))
    return module


def test_assignments_to_received_objects_are_reported(wiring: ModuleAttributes) -> None:
    targets = [assignment.target for assignment in wiring.assignments]
    assert targets == ["worker.listener", "progress.offset", "publisher.generation"]


def test_attributes_of_a_modules_classes_and_fields_of_records_are_permitted(
    wiring: ModuleAttributes,
) -> None:
    assert wiring.declared == {"offset", "limit", "_worker", "state"}
    assert wiring.record_fields == {"offset"}
