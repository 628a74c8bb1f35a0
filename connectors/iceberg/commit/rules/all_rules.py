"""The optional features of commits, in the order in which their hooks are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.iceberg.commit.rules.aggregates import Aggregates
from connectors.iceberg.commit.rules.approval_branch import ApprovalBranch
from connectors.iceberg.commit.rules.cycle_step import UserStep
from connectors.iceberg.commit.rules.expectations import Expectations
from connectors.iceberg.commit.rules.open_pairs import OpenPairs
from connectors.iceberg.commit.rules.rejected_rows import RejectedRows
from connectors.iceberg.commit.rules.scheduled_tags import ScheduledTags
from connectors.iceberg.commit.rules.scratch_branches import ScratchBranches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connectors.iceberg.catalog.java_catalog import JavaCatalog
    from connectors.iceberg.commit.rules.rule import Commit, CommitRule


def all_rules(
    spark: SparkSession, catalog: JavaCatalog, catalog_name: str, commit: Commit
) -> list[CommitRule]:
    """Return the rules of a session.

    Args:
        spark: The session.
        catalog: Its catalog.
        catalog_name: The name of the catalog in the session.
        commit: `CommitEngine.commit`, for follow-up commits to other tables.
    """
    return [
        UserStep(),
        Expectations(),
        RejectedRows(spark, catalog, commit),
        ApprovalBranch(),
        Aggregates(spark, catalog, catalog_name, commit),
        OpenPairs(),
        ScheduledTags(),
        ScratchBranches(),
    ]
