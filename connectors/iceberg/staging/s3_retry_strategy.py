"""S3 retry strategy. PyIceberg loads it because the storage settings contain its class name."""

from __future__ import annotations

from pyarrow.fs import AwsStandardS3RetryStrategy

# With the AWS backoff, 10 attempts take a minute or more. Arrow's default of 3 attempts takes less
# than a second.
ATTEMPTS = 10


class PatientRetries(AwsStandardS3RetryStrategy):  # type: ignore[misc] # pyarrow has no types
    """Retries long enough for storage to restart, because a failed write fails the task."""

    def __init__(self) -> None:
        super().__init__(max_attempts=ATTEMPTS)
