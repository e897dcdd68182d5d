"""Refusals of providers, benchmarks and asks."""

from market.platform.http.problem import MarketError


class ProviderNotFound(MarketError):
    status = 404
    code = "provider-not-found"
    title = "There is no such provider"
    default_remedy = "List all providers with GET /v1/providers."


class NotRegistered(MarketError):
    status = 409
    code = "not-registered"
    title = "You are not registered as a provider"
    default_remedy = "Register first with POST /v1/providers."


class WalletInUse(MarketError):
    status = 409
    code = "wallet-in-use"
    title = "Another node runs with this wallet"
    default_remedy = (
        "Stop one of them, and give each node a wallet and a --state-dir of its own. A node that was killed, and is "
        "started with another --state-dir, has to wait until its silence was noticed; better give it the old one."
    )


class KindFixed(MarketError):
    status = 409
    code = "provider-kind-fixed"
    title = "A provider stays what it registered as"
    default_remedy = "Use another wallet for the other role: nobody may verify in one role what it sells in the other."


class EnvironmentNotAccepted(MarketError):
    """Work in a class can be judged by its verifiers alone, so a network may name those that are accepted."""

    status = 422
    code = "environment-not-accepted"
    title = "This network has no use for the environment class"
    default_remedy = (
        "Use the versions and the execution profile that the network's operator names, or ask for your class."
    )


class ProviderJailed(MarketError):
    status = 409
    code = "provider-jailed"
    title = "You are jailed"
    default_remedy = "Appeal to the operator; only a release on chain ends the jail."


class HardwareInsufficient(MarketError):
    status = 422
    code = "hardware-insufficient"
    title = "The registered hardware does not reach the tier"
    default_remedy = "Choose a lower tier, or register the hardware that you have with POST /v1/providers."


class VerifierNeedsNone(MarketError):
    status = 409
    code = "verifier-needs-no-benchmark"
    title = "Verifiers earn no tier and place no asks"
    default_remedy = "Stake the verifier minimum on chain and send heartbeats; replays come as leases."


class BenchmarkNotFound(MarketError):
    status = 404
    code = "benchmark-not-found"
    title = "There is no such benchmark of yours"
    default_remedy = "Start one with POST /v1/benchmarks."


class BenchmarkAnswered(MarketError):
    status = 409
    code = "benchmark-answered"
    title = "This benchmark has its answer"
    default_remedy = "Start a new one with POST /v1/benchmarks."


class BenchmarkOutOfTurn(MarketError):
    status = 409
    code = "benchmark-out-of-turn"
    title = "The benchmark is not at this step"
    default_remedy = "Take its steps in order and in time: ready, commit, answer; or start a new one."


class BenchmarkPaused(MarketError):
    status = 409
    code = "benchmark-paused"
    title = "A benchmark was not answered right"
    default_remedy = "Check the device (not_before says when the next challenge is given)."


class BenchmarkAtWork(MarketError):
    """Training beside the proof would make it too slow, and the unit late."""

    status = 409
    code = "benchmark-at-work"
    title = "You hold work for a job"
    default_remedy = "Ask again once your slot is free; you need not show your hardware before that."


class BenchmarkBusy(MarketError):
    status = 503
    code = "benchmark-busy"
    title = "Other answers are being checked"
    default_remedy = "Repeat the request in some seconds; the answer counts as of its upload."


class AnswerNotFound(MarketError):
    status = 422
    code = "answer-not-found"
    title = "The answer's content cannot be found"
    default_remedy = "Upload the answer with POST /v1/blobs and send the CID that it returns."


class TierNotEarned(MarketError):
    status = 409
    code = "tier-not-earned"
    title = "You have not earned this tier"
    default_remedy = "Pass the tier's benchmark (POST /v1/benchmarks), or offer the tier that you have."


class InvalidAsk(MarketError):
    status = 422
    code = "invalid-ask"
    title = "The ask breaks a rule"


class AskNotFound(MarketError):
    status = 404
    code = "ask-not-found"
    title = "There is no such open ask of yours"
    default_remedy = "List your asks with GET /v1/asks."


class AttestationNotFound(MarketError):
    status = 404
    code = "attestation-not-found"
    title = "There is no such challenge of yours for an attestation"
    default_remedy = "Ask for one with POST /v1/attestations."


class AttestationAnswered(MarketError):
    status = 409
    code = "attestation-answered"
    title = "This challenge has its quote"
    default_remedy = "See attested_until in GET /v1/providers/ADDRESS; ask for a new challenge to renew it."


class AttestationExpired(MarketError):
    status = 409
    code = "attestation-expired"
    title = "The challenge's time is over"
    default_remedy = "Ask for a new one with POST /v1/attestations and answer it at once."


class InvalidQuote(MarketError):
    status = 422
    code = "invalid-quote"
    title = "The quote does not hold"
    default_remedy = "Take a fresh quote over the challenge's report_data, with current collateral."


class GpusNotAttested(MarketError):
    status = 409
    code = "gpus-not-attested"
    title = "The quote does not cover your GPUs"
    default_remedy = (
        "Send NVIDIA's statement on all GPUs that you registered, and no fewer than your tier has, taken by the quoted "
        "environment itself."
    )


class MeasurementNotAccepted(MarketError):
    status = 409
    code = "measurement-not-accepted"
    title = "The network does not accept this software"
    default_remedy = "Run an image whose measurement the network's admins accepted, or ask them to accept this one."
