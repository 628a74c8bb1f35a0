"""The automatic tour, which shows commands, their output, and the changes that arrive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from connect_py.api.errors import ConnectError
from connect_py.demo.demo import Demo
from connect_py.demo.parts import SINK
from connect_py.quickstart.tables import CATALOG, NAMESPACE, catalog_uri

KILLED_SECONDS: Final = 15.0
COMMIT_SECONDS: Final = 1.5  # by this time, the worker has read rows but not committed all of them
LOOK: Final = """\
from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("{catalog}", uri="{uri}")
table = catalog.load_table("{namespace}.customers")
print(table.schema())
print(table.scan("id = 7").to_arrow().to_pylist()[0])
"""


def take_tour(demo: Demo) -> None:
    """Perform all steps. After the last step, the tables in PostgreSQL and Iceberg are equal.

    Raises:
        ConnectError: A command failed, or a change did not arrive.
    """
    steps: tuple[tuple[str, Callable[[Demo], None]], ...] = (
        ("Change rows in psql", _change_rows),
        ("Change the schema", _change_schema),
        ("Kill the worker in the middle of changes", _kill),
        ("Audit the tables", _audit),
        ("Read the tables with PyIceberg", _pyiceberg),
        ("Read the tables with Spark SQL", _spark),
    )
    for number, (title, step) in enumerate(steps, 1):
        if demo.interrupted.is_set():
            return
        demo.console.print()
        demo.console.rule(f"[bold]{number}. {title}", align="left")
        step(demo)
    demo.console.print()
    demo.console.rule("[bold]Compare", align="left")


def _psql(demo: Demo, *statements: str) -> None:
    """Run statements in psql, and wait until their changes have arrived in Iceberg."""
    for statement in statements:
        demo.command(f'{demo.folder}/psql -c "{statement}"')
    demo.wait_until_equal()


def _change_rows(demo: Demo) -> None:
    _psql(demo, "INSERT INTO customers (name, email)\n  VALUES ('Grace', 'grace@example.org')")
    _psql(demo, "UPDATE customers SET city = 'Faro' WHERE id = 7")
    _psql(
        demo, "DELETE FROM orders WHERE id = 9"
    )  # also deletes the order's lines, because of their foreign key


def _change_schema(demo: Demo) -> None:
    _psql(
        demo,
        "ALTER TABLE customers ADD COLUMN vip boolean",
        "UPDATE customers SET vip = true WHERE id = 7",
    )
    _psql(
        demo,
        "CREATE TABLE reviews\n  (sku uuid REFERENCES products, day date, stars int, PRIMARY KEY "
        "(sku, day))",
        "INSERT INTO reviews\n  SELECT sku, date '2026-05-01', 5 FROM products LIMIT 2",
    )


def _kill(demo: Demo) -> None:
    worker = demo.parts.worker
    burst = (
        "INSERT INTO orders (customer_id, total)\n  SELECT 1 + n % 200, n FROM "
        "generate_series(1, 2000) AS n"
    )
    demo.command(f'{demo.folder}/psql -c "{burst}"')
    demo.interrupted.wait(COMMIT_SECONDS)
    demo.command(f"kill -9 {worker.pid}")
    if not worker.wait(KILLED_SECONDS):
        raise ConnectError("the worker did not exit")
    demo.command(f'{demo.folder}/psql -c "UPDATE customers SET credit = credit + 1"')
    demo.show(f"connect-distributed {demo.folder}/{worker.properties.name} &")
    worker.launch()
    worker.wait_until_it_answers(demo.interrupted)
    demo.report("the worker is running again")
    demo.wait_until_equal()


def _audit(demo: Demo) -> None:
    for table in ("customers", "orders"):
        demo.command(f"connect-py audit {NAMESPACE}.{table} --config {demo.folder}/{SINK}.json")


def _pyiceberg(demo: Demo) -> None:
    program = LOOK.format(catalog=CATALOG, namespace=NAMESPACE, uri=catalog_uri(demo.directory))
    (demo.directory / "look.py").write_text(program)
    demo.command(f"cat {demo.folder}/look.py")
    demo.command(f"python {demo.folder}/look.py")


def _spark(demo: Demo) -> None:
    demo.command(
        f"{demo.folder}/spark-sql -e '\n"
        "  SELECT status, count(*) AS orders, sum(total) AS total\n"
        f"  FROM {CATALOG}.{NAMESPACE}.orders GROUP BY status ORDER BY status'"
    )
