"""`Files`: the files that `connect-py doctor` checks, parsed as a worker parses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from connect_py.api.check import Finding, Verdict
from connect_py.api.errors import ConnectError
from connect_py.config.command_config import connector_properties, worker_properties
from connect_py.config.worker_config import WorkerConfig
from connect_py.connector_file import ConnectorFile
from connect_py.doctor.worker_checks import read_worker

REMEDY = "Correct the file."


@dataclass(frozen=True)
class Files:
    """Contents of the files. Placeholders are resolved unless one of them has no value."""

    connector: Mapping[str, str]  # includes the name; empty if there is no connector file
    worker: Mapping[str, str]
    config: WorkerConfig | None  # None if missing or invalid
    errors: Sequence[Finding]

    @classmethod
    def read(cls, worker: Path | None, connector: Path | None) -> Self:
        """Read both files. A file that cannot be read is reported as a finding."""
        errors: list[Finding] = []
        props: dict[str, str] = {}
        if connector is not None:
            try:
                file = ConnectorFile.read(connector)
                props = {key: value for key, value in file.config.items() if value is not None} | {
                    "name": file.name
                }
            except (ConnectError, ValueError) as error:
                errors.append(Finding("connector", Verdict.FAIL, str(error), REMEDY))
        if worker is None:
            return cls(props, {}, None, errors)
        config, settings = None, {}
        try:
            config = read_worker(worker)
            settings = worker_properties(worker)
            props = connector_properties(props, worker)
        except (ConnectError, ValueError) as error:
            subject = "properties" if config is None else "placeholders"
            errors.append(Finding(subject, Verdict.FAIL, f"{worker}: {error}", REMEDY))
        return cls(props, settings, config, errors)
