"""Retry strategy for S3, which PyIceberg creates by its name in the storage settings."""

from __future__ import annotations

from pyarrow.fs import AwsStandardS3RetryStrategy

# with Amazon's backoff, a minute or more; Arrow's default of three takes less than a second
ATTEMPTS = 10


class PatientRetries(AwsStandardS3RetryStrategy):  # type: ignore[misc] # pyarrow has no types
    """Retries until the storage has restarted, because a failed write fails the task."""

    def __init__(self) -> None:
        super().__init__(max_attempts=ATTEMPTS)
