"""How wheels are made of this repository; everything else stands in pyproject.toml."""

from __future__ import annotations

import shutil
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# `.so`, without a version of Python in it: the compiled libraries use nothing of Python.
# connect_py/columns/compiled.py looks for the same name.
SUFFIX = EXTENSION_SUFFIXES[-1]


class BuildLibraries(build_ext):
    """Gives the compiled libraries names that do not tell a version of Python."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + SUFFIX


class TaggedWheel(bdist_wheel):
    """One wheel for all versions of Python 3: of a platform if the libraries were compiled, else
    for any machine."""

    def run(self) -> None:
        built = Path(self.get_finalized_command("build").build_lib)
        # modules that were removed since would be in the wheel
        shutil.rmtree(built, ignore_errors=True)
        self.run_command("build")
        self.skip_build = True
        if next(built.rglob(f"*{SUFFIX}"), None) is None:
            self.root_is_pure = True
            self.distribution.has_ext_modules = lambda: False
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_ext": BuildLibraries, "bdist_wheel": TaggedWheel})
