"""Protobuf schemas as texts to descriptors, by the real compiler."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from connect_py.api.errors import DataError

COMPILE_SECONDS: Final = 60.0
_OF_THE_LIBRARY: Final = re.compile(r"WARNING: All log messages before|[IWEF]\d{4} ")
_OWN: Final = Path(__file__).parent / "proto"


def compile_proto(text: str, references: Mapping[str, str] | None = None) -> FileDescriptor:
    """Compile a schema in a pool of its own, where names of other schemas do not matter.

    The compiler runs as a process, so that what it prints becomes the message. `references` holds
    the files that `text` imports and that do not come with the compiler, by name. Each may also be
    a descriptor in base64: so some serializers register them, and so some registries give them
    back.

    Raises:
        DataError: It is not a Protobuf schema; says where.
    """
    with tempfile.TemporaryDirectory(prefix="connect-py-proto-") as made:
        folder = Path(made)
        main = folder / _free_name(references or {})
        compiled = FileDescriptorSet()
        for name, other in {**(references or {}), main.name: text}.items():
            descriptor = _descriptor(other)
            if descriptor is None:
                _write(folder, name, other)
            else:
                descriptor.name = name
                compiled.file.append(descriptor)
        out, given = folder / "descriptors", folder / "given"
        given.write_bytes(compiled.SerializeToString())
        command = [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{folder}",
            f"-I{_OWN}",
            f"-I{_common_protos()}",
            f"-I{_well_known_protos()}",
            f"--descriptor_set_in={given}",
            "--include_imports",
            f"--descriptor_set_out={out}",
            main.name,
        ]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMPILE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DataError("compiling the Protobuf schema takes too long") from error
        if done.returncode:
            raise DataError(
                f"Not a Protobuf schema: {_complaint(done.stderr.decode(errors='replace'), folder)}"
            )
        files = FileDescriptorSet.FromString(out.read_bytes())
    pool = DescriptorPool()
    for file in files.file:  # imports come before what imports them
        pool.Add(file)
    return pool.FindFileByName(main.name)


def _complaint(text: str, folder: Path) -> str:
    """What the compiler says of the schema, without what its library says of itself, and without
    our folder."""
    lines = [line for line in text.splitlines() if not _OF_THE_LIBRARY.match(line)]
    return "\n".join(lines).replace(f"{folder}{os.sep}", "").strip()


def _descriptor(text: str) -> FileDescriptorProto | None:
    """The descriptor that stands there instead of a text; None: it is a text."""
    try:
        data = base64.b64decode(text.strip(), validate=True)  # a text has blanks and semicolons
        return FileDescriptorProto.FromString(data) if data else None
    except (ValueError, DecodeError):
        return None


def _write(folder: Path, name: str, text: str) -> None:
    try:
        path = (folder / name).resolve()
        inside = path.is_relative_to(folder.resolve())
        if inside:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        inside = False
    if not inside:
        raise DataError(f"the schema refers to {name[:200]!r}, which is no name of a file")


def _free_name(taken: Mapping[str, str]) -> str:
    name = "schema.proto"
    while name in taken:
        name = f"_{name}"
    return name


def _well_known_protos() -> Path:
    import grpc_tools

    return Path(grpc_tools.__file__).parent / "_proto"


def _common_protos() -> Path:
    """The folder above `google/type/date.proto` and its like."""
    from google.type import date_pb2

    return Path(date_pb2.__file__).parents[2]
