"""Problems of providers, benchmarks and asks."""

from market.platform.http.problem import Conflict, MarketError, MissingResource, UnprocessableRequest


class ProviderNotFound(MissingResource):
    code = "provider-not-found"
    title = "There is no such provider"
    default_remedy = "List all providers with GET /v1/providers."


class NotRegistered(Conflict):
    code = "not-registered"
    title = "You are not registered as a provider"
    default_remedy = "Register first with POST /v1/providers."


class WalletInUse(Conflict):
    code = "wallet-in-use"
    title = "Another node runs with this wallet"
    default_remedy = (
        "Stop one of them, and use a separate wallet and --state-dir per node. After a crash, restart the node with "
        "its old --state-dir; with another one it must wait for the heartbeat timeout."
    )


class KindFixed(Conflict):
    code = "provider-kind-fixed"
    title = "The kind of a registered node cannot change"
    default_remedy = "Use another wallet for the other kind. A wallet must not verify its own work."


class EnvironmentNotAccepted(UnprocessableRequest):
    """The network does not accept this environment class: it needs verifiers of the class."""

    code = "environment-not-accepted"
    title = "This network does not accept the environment class"
    default_remedy = "Use the versions and execution profile of an accepted class, or ask the operator to accept yours."


class ProviderJailed(Conflict):
    code = "provider-jailed"
    title = "You are jailed"
    default_remedy = "Ask the operator for a release. Only a release on chain ends the jail."


class HardwareInsufficient(UnprocessableRequest):
    code = "hardware-insufficient"
    title = "The registered hardware is below the tier's"
    default_remedy = "Choose a lower tier, or correct your hardware with POST /v1/providers."


class VerifierNeedsNone(Conflict):
    code = "verifier-needs-no-benchmark"
    title = "Verifiers have no tier and no asks"
    default_remedy = "Stake the verifier minimum on chain and send heartbeats. Replays arrive as leases."


class BenchmarkNotFound(MissingResource):
    code = "benchmark-not-found"
    title = "There is no such benchmark of yours"
    default_remedy = "Start one with POST /v1/benchmarks."


class BenchmarkAnswered(Conflict):
    code = "benchmark-answered"
    title = "This benchmark was answered before"
    default_remedy = "Start a new one with POST /v1/benchmarks."


class BenchmarkOutOfTurn(Conflict):
    code = "benchmark-out-of-turn"
    title = "The benchmark is not at this step"
    default_remedy = "Call ready, commit and answer in this order and in time, or start a new benchmark."


class BenchmarkPaused(Conflict):
    code = "benchmark-paused"
    title = "The last benchmark failed"
    default_remedy = "Check the device, and start a benchmark after not_before."


class BenchmarkAtWork(Conflict):
    """Training in parallel would slow the benchmark and delay the unit."""

    code = "benchmark-at-work"
    title = "The node works for a job"
    default_remedy = "Repeat the request after the job. No benchmark is required before that."


class BenchmarkBusy(MarketError):
    status = 503
    code = "benchmark-busy"
    title = "Another answer is being checked"
    default_remedy = "Repeat the request in a few seconds. The time of the upload counts."


class AnswerNotFound(UnprocessableRequest):
    code = "answer-not-found"
    title = "The answer is not on storage"
    default_remedy = "Upload the answer with POST /v1/blobs and send the returned CID."


class TierNotEarned(Conflict):
    code = "tier-not-earned"
    title = "You have not earned this tier"
    default_remedy = "Pass the tier's benchmark (POST /v1/benchmarks), or offer your current tier."


class InvalidAsk(UnprocessableRequest):
    code = "invalid-ask"
    title = "The ask breaks a rule"


class AskNotFound(MissingResource):
    code = "ask-not-found"
    title = "There is no such open ask of yours"
    default_remedy = "List your asks with GET /v1/asks."


class AttestationNotFound(MissingResource):
    code = "attestation-not-found"
    title = "You have no such attestation challenge"
    default_remedy = "Create one with POST /v1/attestations."


class AttestationAnswered(Conflict):
    code = "attestation-answered"
    title = "This challenge was answered before"
    default_remedy = "See attested_until in GET /v1/providers/ADDRESS. Create a new challenge to renew it."


class AttestationExpired(Conflict):
    code = "attestation-expired"
    title = "The challenge has expired"
    default_remedy = "Create a new one with POST /v1/attestations and answer it at once."


class InvalidQuote(UnprocessableRequest):
    code = "invalid-quote"
    title = "The quote is invalid"
    default_remedy = "Send a new quote over the challenge's report_data, with current collateral."


class GpusNotAttested(Conflict):
    code = "gpus-not-attested"
    title = "The quote does not cover your GPUs"
    default_remedy = (
        "Send NVIDIA's statement on all registered GPUs, at least as many as your tier has, taken inside the quoted "
        "environment."
    )


class MeasurementNotAccepted(Conflict):
    code = "measurement-not-accepted"
    title = "The network does not accept this software"
    default_remedy = "Run an image with an accepted measurement, or ask the network's admins to accept this one."
