"""`Pipeline`: a pipeline file, read, checked and compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from connectors.iceberg_tools.pipeline.checks import (
    TargetChecks,
    check_between,
    check_catalog,
    check_options,
    check_properties,
)
from connectors.iceberg_tools.pipeline.compiler import CompiledConnector, Compiler
from connectors.iceberg_tools.pipeline.file_fields import FILE
from connectors.iceberg_tools.pipeline.kinds import Found
from connectors.iceberg_tools.pipeline.mistake import Mistake, Mistakes, PipelineFileError, Place
from connectors.iceberg_tools.pipeline.target import Target
from connectors.iceberg_tools.pipeline.yaml_tree import Entries, Node, read_yaml

DEFAULT_WORKER = "http://127.0.0.1:8083"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What a file says."""

    file: str
    name: str
    worker: str  # address
    connectors: Mapping[str, CompiledConnector]  # by name, in the order of the file


def read_pipeline(file: Path) -> Pipeline:
    """Read a file.

    Raises:
        PipelineFileError: It has mistakes, of which all are in the error.
        OSError: It cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode(encoding="utf-8")
        place = Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
        mistakes = [Mistake(place, "", f"this is no text in UTF-8: {error.reason}")]
        raise PipelineFileError(str(file), mistakes) from error
    return parse_pipeline(text, str(file))


def parse_pipeline(text: str, file: str = "") -> Pipeline:
    """The same of a text. `file`: its name in messages."""
    mistakes = Mistakes()
    tree = read_yaml(text, mistakes)
    found = None if tree is None else FILE.read(tree, "", mistakes)
    pipeline = None if tree is None or found is None else _pipeline(tree, found, file, mistakes)
    if mistakes or pipeline is None:
        raise PipelineFileError(file, mistakes.sorted())
    return pipeline


def _pipeline(tree: Node, found: Found, file: str, mistakes: Mistakes) -> Pipeline:
    fields: Mapping[str, Found] = found.value
    name = fields["pipeline"].value if "pipeline" in fields else ""
    defaults = fields["defaults"].value if "defaults" in fields else {}
    given = fields["targets"].value if "targets" in fields else {}
    targets = [Target.of(name, each, own, defaults) for each, own in given.items()]
    for target in targets:
        written = _keys(tree, "targets", target.name) | _keys(tree, "defaults")
        TargetChecks(target, mistakes, written - target.fields.keys()).check()
    check_catalog(fields.get("catalog"), mistakes)
    check_between(targets, mistakes)
    compiled = [Compiler(target, fields).compile() for target in targets]
    for connector in compiled:
        check_properties(connector, mistakes)
    for connector in compiled:  # of others the sink says the same again, in words of its own
        if not mistakes.below("defaults", "catalog", connector.target.path):
            check_options(connector, mistakes)
    worker = fields["worker"].value if "worker" in fields else DEFAULT_WORKER
    return Pipeline(file, name, worker, {each.name: each for each in compiled})


def _keys(node: Node, *path: str) -> set[str]:
    """The keys that are written at a path, right or wrong."""
    for part in path:
        below = (
            [value for key, value in node.entries if key.text == part]
            if isinstance(node, Entries)
            else []
        )
        if not below:
            return set()
        node = below[0]
    return {key.text for key, _ in node.entries} if isinstance(node, Entries) else set()
