from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyarrow", "pyspark", "fastavro")


def test_front_process_loads_no_column_library_and_no_spark() -> None:
    program = (
        "import sys\n"
        "from connect_py.plugins.plugin_registry import PluginRegistry\n"
        "from connect_py.worker.worker import Worker\n"
        "Worker({}, plugins=PluginRegistry.discover(), listener=None)\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert answer.stdout.strip() == "[]"
