"""`Pipeline`: a pipeline file that has been read, checked, and compiled."""

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
from connectors.iceberg_tools.pipeline.kinds import FieldValue
from connectors.iceberg_tools.pipeline.mistake import (
    FilePosition,
    Mistake,
    Mistakes,
    PipelineFileError,
)
from connectors.iceberg_tools.pipeline.target import Target
from connectors.iceberg_tools.pipeline.yaml_tree import Entries, Node, read_yaml

DEFAULT_WORKER = "http://127.0.0.1:8083"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Contents of a pipeline file."""

    file: str
    name: str
    worker: str  # URL of the worker
    connectors: Mapping[str, CompiledConnector]  # by name, in file order


def read_pipeline(file: Path) -> Pipeline:
    """Read a pipeline file.

    Raises:
        PipelineFileError: The file is invalid. The exception lists all mistakes.
        OSError: The file cannot be read.
    """
    try:
        content = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode(encoding="utf-8")
        position = FilePosition(before.count("\n") + 1, len(before) - before.rfind("\n"))
        mistakes = [Mistake(position, "", f"the file is not valid UTF-8: {error.reason}")]
        raise PipelineFileError(str(file), mistakes) from error
    return parse_pipeline(content, str(file))


def parse_pipeline(content: str, file: str = "") -> Pipeline:
    """Parse the contents of a pipeline file.

    Args:
        content: The contents.
        file: Name of the file in messages.

    Raises:
        PipelineFileError: The file is invalid. The exception lists all mistakes.
    """
    mistakes = Mistakes()
    tree = read_yaml(content, mistakes)
    contents = None if tree is None else FILE.read(tree, "", mistakes)
    pipeline = (
        None if tree is None or contents is None else _pipeline(tree, contents, file, mistakes)
    )
    if mistakes or pipeline is None:
        raise PipelineFileError(file, mistakes.sorted())
    return pipeline


def _pipeline(tree: Node, contents: FieldValue, file: str, mistakes: Mistakes) -> Pipeline:
    fields: Mapping[str, FieldValue] = contents.value
    name = fields["pipeline"].value if "pipeline" in fields else ""
    defaults = fields["defaults"].value if "defaults" in fields else {}
    target_fields = fields["targets"].value if "targets" in fields else {}
    targets = [
        Target.of(name, each, target_field, defaults)
        for each, target_field in target_fields.items()
    ]
    for target in targets:
        written = _keys(tree, "targets", target.name) | _keys(tree, "defaults")
        TargetChecks(target, mistakes, written - target.fields.keys()).check()
    check_catalog(fields.get("catalog"), mistakes)
    check_between(targets, mistakes)
    compiled = [Compiler(target, fields).compile() for target in targets]
    for connector in compiled:
        check_properties(connector, mistakes)
    for connector in compiled:
        # otherwise, the sink would report the same mistakes again in different words
        if not mistakes.below("defaults", "catalog", connector.target.path):
            check_options(connector, mistakes)
    worker = fields["worker"].value if "worker" in fields else DEFAULT_WORKER
    return Pipeline(file, name, worker, {each.name: each for each in compiled})


def _keys(node: Node, *path: str) -> set[str]:
    """Return the keys at a path, including invalid keys."""
    for part in path:
        below = (
            [value for key, value in node.entries if key.value == part]
            if isinstance(node, Entries)
            else []
        )
        if not below:
            return set()
        node = below[0]
    return {key.value for key, _ in node.entries} if isinstance(node, Entries) else set()
