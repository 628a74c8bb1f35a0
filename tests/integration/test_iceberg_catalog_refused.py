"""A catalog that cannot be created: the task gets the error immediately, and the message outlives
the JVM.
"""

from __future__ import annotations

import traceback

import pytest

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.testing import FakeSharedServices
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.driver.lake_client import LakeClient


@pytest.mark.usefixtures("spark_environment")
@pytest.mark.parametrize(
    ("properties", "said"),
    [
        (
            {"type": "rset"},
            "the catalog: UnsupportedOperationException: Unknown catalog type: rset",
        ),
        pytest.param(
            {"type": "jdbc", "uri": "sqlite:////no/catalog.db", "warehouse": "file:///no"},
            "No suitable driver found for sqlite:////no/catalog.db: iceberg.catalog.uri must be "
            "a JDBC URL",
            marks=pytest.mark.long,
        ),
    ],
)
def test_catalog_that_can_never_work_is_a_configuration_error(
    properties: dict[str, str], said: str
) -> None:
    with FakeSharedServices() as services:
        lake = LakeClient(services, SparkConfig("iceberg", properties))
        lake.start()
        with pytest.raises(ConnectError) as caught:
            lake.load("shop.orders", "connect-py.ledger.orders")
        lake.stop()
    assert not isinstance(caught.value, RetriableError)
    assert said in str(caught.value)
    assert "table the catalog" not in str(caught.value)
    trace = "".join(traceback.format_exception(caught.value))
    assert "Exception: " in trace
    assert "\tat " in trace
    assert "str() failed" not in trace
    assert trace.count("\tat ") < 40
