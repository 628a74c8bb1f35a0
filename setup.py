"""Build of wheels and of the native libraries; all other settings are in pyproject.toml."""

from __future__ import annotations

import os
import shutil
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

# `.so` without a version of Python, because the libraries do not use Python's API;
# connect_py/columns/native_library.py expects the same name
SUFFIX = EXTENSION_SUFFIXES[-1]
PURE_WHEEL = "CONNECT_PY_PURE_WHEEL"  # environment variable; "1" builds a wheel without libraries
MISSING_LIBRARIES = f"""cannot build a wheel without the native libraries ({{missing}}).

Install a Rust compiler (https://rustup.rs, or the packages rustc and cargo of your distribution)
and a C linker, and build the wheel again. The output above shows the errors of cargo.

To build a wheel without the libraries, which decodes JSON and Avro row by row, set
{PURE_WHEEL}=1. An editable installation (pip install -e .) does not require Rust."""


class BuildLibraries(build_ext):
    """Builds the native libraries. Their file names do not contain a version of Python."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + SUFFIX


class PlatformWheel(bdist_wheel):
    """Wheel for one platform and all versions of Python 3, or for all platforms if it is pure."""

    def run(self) -> None:
        is_pure = os.environ.get(PURE_WHEEL) == "1"
        libraries = [extension.name for extension in self.distribution.rust_extensions]
        if is_pure:
            self.distribution.rust_extensions = []
            self.distribution.has_ext_modules = lambda: False
            self.root_is_pure = True
        build_folder = Path(self.get_finalized_command("build").build_lib)
        # otherwise, the wheel would contain modules that were removed since the last build
        shutil.rmtree(build_folder, ignore_errors=True)
        self.run_command("build")
        self.skip_build = True
        paths = {name: build_folder / (name.replace(".", "/") + SUFFIX) for name in libraries}
        missing = [name for name, path in paths.items() if not path.exists()]
        if missing and not is_pure:
            raise CompileError(MISSING_LIBRARIES.format(missing=", ".join(missing)))
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_ext": BuildLibraries, "bdist_wheel": PlatformWheel})
