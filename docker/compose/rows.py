"""Print the rows of an Iceberg table: `rows.py TABLE`.

The catalog is read from the worker's properties.
"""

import os
import sys
from pathlib import Path

import javaproperties
from pyiceberg.catalog import load_catalog

PREFIX = "connect_py.defaults.iceberg.catalog."
file = Path(os.environ.get("CONNECT_PY_PROPERTIES") or "/etc/connect-py/worker.properties")
with file.open("rb") as opened:
    properties = javaproperties.load(opened)
catalog = {
    key.removeprefix(PREFIX): value for key, value in properties.items() if key.startswith(PREFIX)
}
catalog.pop("io-impl", None)  # a Java class
table = load_catalog("lake", **catalog).load_table(sys.argv[1])
for row in sorted(table.scan().to_arrow().to_pylist(), key=lambda row: str(row.get("id"))):
    print(*(f"{name}={value}" for name, value in row.items()))
