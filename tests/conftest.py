"""Resources of the test session: one broker and one Spark environment; no process is left
running.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import ssl
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import certifi
import psutil
import pytest
from command_lines import command_line
from container_image import BuiltImage, built_image
from hypothesis import settings

from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.spark_environment import OPTIONS_VARIABLE
from connect_py.embedded.spark_environment import spark_environment as resolve_spark_environment

# how long an example takes is the machine's business
settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")

WITHOUT_GENERATED_CODE = (
    "-Dspark.sql.codegen.wholeStage=false",
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
)
CHILD_GRACE_SECONDS = 5.0
END_SECONDS = 120.0
# The standard library's own helpers end with this process and not before; children of the first
# look like it.
STANDARD_HELPERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")


def pytest_unconfigure() -> None:
    """Show the stacks of threads that keep the process from exiting after the summary, and exit."""
    faulthandler.dump_traceback_later(END_SECONDS, exit=True, file=sys.__stderr__)


@pytest.fixture(scope="session", autouse=True)
def _no_child_outlives_the_session() -> Iterator[None]:
    """Set up before every other session fixture, so checked after all of them are torn down."""
    yield
    _, left = psutil.wait_procs(_children(), timeout=CHILD_GRACE_SECONDS)
    told = [
        f"{process.pid}: {command_line(process)[:200]}" for process in left if process.is_running()
    ]
    for process in left:
        process.kill()
    assert not told, "the tests left processes behind:\n" + "\n".join(told)


def _children() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    helpers = [
        child for child in children if any(name in command_line(child) for name in STANDARD_HELPERS)
    ]
    return [child for child in children if child not in helpers or child.ppid() != os.getpid()]


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each client of HTTP reads all authorities in 40 ms of a processor; no test goes where they
    are needed."""
    every = {certifi.where(), os.environ.get("SSL_CERT_FILE", "")}
    first, end, _ = Path(certifi.where()).read_text("utf-8").partition("-----END CERTIFICATE-----")
    one = tmp_path_factory.mktemp("authority") / "one.pem"
    one.write_text(first + end + "\n", "utf-8")
    load = ssl.SSLContext.load_verify_locations

    def load_one(
        context: ssl.SSLContext, cafile: Any = None, capath: Any = None, cadata: Any = None
    ) -> None:
        load(context, one if cafile in every else cafile, capath, cadata)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_verify_locations", load_one)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_warm_up() -> Iterator[None]:
    """Drivers of tests commit immediately; a warm-up would only take processor time from other
    tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONNECT_PY_SPARK_WARM_UP", "false")
        yield


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """The session's broker. Tests that stop, pause, or kill a broker start a separate one."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def release() -> ModuleType:
    """`tools/release.py`, as a new module for each test."""
    spec = importlib.util.spec_from_file_location(
        "release", Path(__file__).parents[1] / "tools" / "release.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def container_image() -> Iterator[BuiltImage]:
    """The session's image of a worker, which takes minutes and gigabytes: for long tests.

    $CONNECT_PY_TEST_IMAGES is a folder for the image: an existing image is not built again.
    """
    if kept := os.environ.get("CONNECT_PY_TEST_IMAGES"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        with built_image(Path(kept)) as image:
            yield image
        return
    with tempfile.TemporaryDirectory(prefix="connect-py-image-") as folder:
        Path(folder).chmod(0o755)
        with built_image(Path(folder)) as image:
            yield image


@pytest.fixture
def topic_prefix() -> str:
    """A prefix for topics, groups and transactional ids that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}-"


@pytest.fixture(scope="session")
def spark_environment(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """CONNECT_PY_JAVA and CONNECT_PY_SPARK_JARS, also exported to the processes that tests start.

    Short tests run hundreds of small statements: to generate Java and compile it takes longer than
    to run them without. `make test-long` has it as users have it.
    """
    resolved = resolve_spark_environment()
    if request.config.getoption("markexpr") == "not long":
        resolved[OPTIONS_VARIABLE] = " ".join(
            [resolved[OPTIONS_VARIABLE], *WITHOUT_GENERATED_CODE]
        ).strip()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in resolved.items():
            patch.setenv(name, value)
        yield resolved
