"""How long writing to S3 is tried: PyIceberg makes it by its name in the storage settings."""

from __future__ import annotations

from pyarrow.fs import AwsStandardS3RetryStrategy

# with Amazon's pauses in between a minute or more; Arrow's own three are over within a second
ATTEMPTS = 10


class PatientRetries(AwsStandardS3RetryStrategy):  # type: ignore[misc] # pyarrow has no types
    """Outlasts a restart of the storage: a task whose files cannot be written fails."""

    def __init__(self) -> None:
        super().__init__(max_attempts=ATTEMPTS)
