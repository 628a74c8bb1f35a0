"""Compiles Protobuf schemas to descriptors with the Protobuf compiler."""

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
_LIBRARY_LOG_LINE: Final = re.compile(r"WARNING: All log messages before|[IWEF]\d{4} ")
_PROTO_FOLDER: Final = Path(__file__).parent / "proto"


def compile_proto(text: str, references: Mapping[str, str] | None = None) -> FileDescriptor:
    """Compile a schema into a separate descriptor pool, isolated from the names of other schemas.

    The compiler runs in a child process, and its output becomes the error message.

    Args:
        text: The schema, or its base64-encoded descriptor, which some serializers register and some
            registries return.
        references: Imported files, keyed by name, in the same format as `text`. The files in
            google/protobuf and google/type are always available.

    Raises:
        DataError: The schema is invalid. The message contains the position of the error.
    """
    with tempfile.TemporaryDirectory(prefix="connect-py-proto-") as folder_name:
        folder = Path(folder_name)
        main = folder / _free_name(references or {})
        compiled = FileDescriptorSet()
        for name, source in {**(references or {}), main.name: text}.items():
            descriptor = _descriptor(source)
            if descriptor is None:
                _write(folder, name, source)
            else:
                descriptor.name = name
                compiled.file.append(descriptor)
        out, precompiled = folder / "descriptors", folder / "given"
        precompiled.write_bytes(compiled.SerializeToString())
        command = [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{folder}",
            f"-I{_PROTO_FOLDER}",
            f"-I{_common_protos()}",
            f"-I{_well_known_protos()}",
            f"--descriptor_set_in={precompiled}",
            "--include_imports",
            f"--descriptor_set_out={out}",
            main.name,
        ]
        try:
            process = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMPILE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DataError(
                f"timed out after {COMPILE_SECONDS:.0f} s while compiling the Protobuf schema"
            ) from error
        if process.returncode:
            output = process.stderr.decode(errors="replace")
            raise DataError(f"Not a Protobuf schema: {_compiler_error(output, folder)}")
        files = FileDescriptorSet.FromString(out.read_bytes())
    pool = DescriptorPool()
    for file in files.file:  # imported files precede the files that import them
        pool.Add(file)
    return pool.FindFileByName(main.name)


def _compiler_error(text: str, folder: Path) -> str:
    """Return the compiler errors without the path of `folder` and the library's log lines."""
    lines = [line for line in text.splitlines() if not _LIBRARY_LOG_LINE.match(line)]
    return "\n".join(lines).replace(f"{folder}{os.sep}", "").strip()


def _descriptor(text: str) -> FileDescriptorProto | None:
    """Decode a base64-encoded descriptor. Return None if the schema is in the Protobuf language."""
    try:
        data = base64.b64decode(
            text.strip(), validate=True
        )  # schemas in the Protobuf language contain spaces and semicolons
        return FileDescriptorProto.FromString(data) if data else None
    except (ValueError, DecodeError):
        return None


def _write(folder: Path, name: str, text: str) -> None:
    try:
        path = (folder / name).resolve()
        is_inside = path.is_relative_to(folder.resolve())
        if is_inside:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        is_inside = False
    if not is_inside:
        raise DataError(f"the schema refers to {name[:200]!r}, which is not a valid file name")


def _free_name(references: Mapping[str, str]) -> str:
    name = "schema.proto"
    while name in references:
        name = f"_{name}"
    return name


def _well_known_protos() -> Path:
    import grpc_tools

    return Path(grpc_tools.__file__).parent / "_proto"


def _common_protos() -> Path:
    """Return the folder that contains `google/type/date.proto` and similar files."""
    from google.type import date_pb2

    return Path(date_pb2.__file__).parents[2]
