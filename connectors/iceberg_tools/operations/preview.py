"""Preview the effect of records in the connector's topics. Nothing is committed."""

from __future__ import annotations

from typing import Any, Final

from connect_py.api.errors import ConfigError
from connectors.iceberg.operation_request import OperationRequest
from connectors.iceberg_tools.operations.argument_names import accepts
from connectors.iceberg_tools.trial.topic_sample import SampleRequest, TopicSample
from connectors.iceberg_tools.trial.trial import Trial
from connectors.iceberg_tools.trial.trial_document import table_look_up, trial_document

RECORDS: Final = 200
MOST: Final = 2000
SAMPLES: Final = 5
SHOWN: Final = 100


@accepts("records", "newest")
def preview(request: OperationRequest) -> Any:
    """Read and route records, and return the same document as `connect-py try --json`."""
    if request.pipelines is None:
        raise ConfigError("", "only a worker has the connector's converters and transformations")
    sample_request = SampleRequest(request.count("records", RECORDS, MOST), request.flag("newest"))
    sample = TopicSample(request.kafka(), request.props, sample_request)
    pipeline = request.pipelines.open()
    try:
        with request.lake() as lake:
            trial = Trial(request.config, table_look_up(request.config, lake), SAMPLES)
            for run in sample.read():
                trial.take(pipeline.process([run]))
    finally:
        pipeline.close()
    document = trial_document(request.config, sample, trial)
    return {**document, "bad": document["bad"][:SHOWN], "bad_count": len(document["bad"])}
