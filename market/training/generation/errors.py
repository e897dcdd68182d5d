"""Refusals of samples of a model."""

from market.platform.http.problem import Conflict, MarketError, UnprocessableRequest


class NoModelYet(Conflict):
    code = "no-model-yet"
    title = "The job has no checkpoint yet"
    default_remedy = "Wait until the job runs; its first checkpoint is the model before training."


class ModelTooLarge(UnprocessableRequest):
    code = "model-too-large"
    title = "The model exceeds the memory of the market's workers"
    default_remedy = "Sample it on your own machine: zoo-compute job sample."


class SamplesBusy(MarketError):
    """Other samples wait, of the caller or of all accounts."""

    status = 429
    code = "samples-busy"
    title = "Too many samples wait or were made"
    default_remedy = "Wait until a sample ends, or sample on your own machine: zoo-compute job sample."


class SampleNotFound(MarketError):
    status = 404
    code = "sample-not-found"
    title = "There is no such sample"
    default_remedy = "Samples are deleted after an hour. Sample the model again."
