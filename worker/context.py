"""What tasks work with, built once per worker process, and which part of the market hears of which chain event."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from redis import Redis

import market.tables  # noqa: F401  # foreign keys cross features: a process must know all tables
from market.chain.contracts.codec import Deployment
from market.chain.indexer import EventHandler, Indexer
from market.chain.models import OPERATOR
from market.chain.sending.sender import IntentHandler, Sender
from market.chain.sending.signer import Signer
from market.chain.views import ChainViews
from market.domain.network import NETWORKS, NetworkParameters
from market.ledger import chain_events as ledger_chain_events
from market.orders import cancellation, submission
from market.payments.rewards import service as rewards
from market.payments.settlement import claims, contested_units
from market.payments.settlement import service as settlement
from market.platform.db.session import Database
from market.platform.db.task_queue import celery_wake, connect_redis
from market.platform.observability.logs import configure_logs
from market.platform.observability.tracing import configure_tracing
from market.platform.storage.client import Storage
from market.providers import standing as providers
from market.providers.attestation import chain_events as attestation_chain_events
from market.providers.record import uptime
from market.settings import Settings
from market.verification.disputes import chain_events as disputes_chain_events
from market.verification.judgement import decisions
from market.verification.penalties import service as penalties
from market.verification.windows import omissions
from market.verification.windows import service as windows
from market.wiring import connect_features

STAKE_EVENTS = ("Staked", "UnstakeRequested", "Withdrawn", "Slashed", "Jailed", "Released")


@dataclass(frozen=True, slots=True)
class Context:
    """The process's connections and fixed facts. All of them may be used from several threads."""

    settings: Settings
    network: NetworkParameters
    database: Database
    chain: ChainViews
    storage: Storage
    redis: Redis
    indexer: Indexer
    senders: tuple[Sender, ...]  # one for each of the market's accounts
    challenger: str | None  # address of the account that disputes units, if there is one
    former_challengers: frozenset[str]  # addresses of accounts that only end what they have begun


@cache
def context() -> Context:
    """This process's context, from the environment."""
    return build_context(Settings())  # type: ignore[call-arg]  # the environment has them


def build_context(settings: Settings) -> Context:
    """Connect everything. Nothing is asked yet: parts may come up later than this process."""
    configure_logs(settings.log_level, as_json=settings.log_json, processors=configure_tracing("zoo-worker"))
    connect_features()
    network = NETWORKS[settings.network]
    deployment = Deployment.load(Path(settings.deployment_file))
    database = Database(settings.database_url, wake=celery_wake(settings.redis_url))
    chain = ChainViews.connect(settings, deployment)
    challenger, former = Signer.challenger(settings), Signer.former_challenger(settings)
    disputing = {signer.address: signer for signer in (challenger, former) if signer is not None}
    accounts = {OPERATOR: Signer.from_settings(settings)} | disputing
    return Context(
        settings=settings,
        network=network,
        database=database,
        chain=chain,
        storage=Storage(settings.ipfs_api),
        redis=connect_redis(settings.redis_url),
        indexer=Indexer(database, chain.client, deployment, event_handlers(network, deployment)),
        senders=tuple(
            Sender(database, chain.client, deployment, signer, settings, INTENT_HANDLERS, account)
            for account, signer in accounts.items()
        ),
        challenger=None if challenger is None else challenger.address,
        former_challengers=frozenset(disputing) - {challenger.address if challenger else ""},
    )


def event_handlers(network: NetworkParameters, deployment: Deployment) -> Mapping[tuple[str, str], list[EventHandler]]:
    """Who hears of which final event, in order: the ledger first, so that every feature finds it booked."""
    handlers: defaultdict[tuple[str, str], list[EventHandler]] = defaultdict(list)
    for key, handler in ledger_chain_events.handlers(deployment).items():
        handlers[key].append(handler)
    for name in STAKE_EVENTS:
        handlers["ProviderStaking", name].append(partial(providers.on_stake_changed, network))
    handlers["ProviderStaking", "Slashed"].append(penalties.on_slashed)
    handlers["ProviderStaking", "Slashed"].append(uptime.on_slashed)
    handlers["ProviderStaking", "Committed"].append(uptime.on_committed)
    handlers["Rewards", "EpochPosted"].append(rewards.on_epoch_posted)
    handlers["Rewards", "EpochVetoed"].append(rewards.on_epoch_vetoed)
    handlers["Rewards", "Claimed"].append(rewards.on_claimed)
    handlers["Attestations", "Attested"].append(attestation_chain_events.on_attested)
    handlers["Attestations", "Revoked"].append(attestation_chain_events.on_revoked)
    handlers["Attestations", "MeasurementSet"].append(attestation_chain_events.on_measurement_set)
    handlers["WorkWindows", "WindowCommitted"].append(windows.on_window_committed)
    handlers["WorkWindows", "SeedRescheduled"].append(windows.on_seed_rescheduled)
    handlers["WorkWindows", "SeedLatched"].append(windows.on_seed_latched)
    handlers["Omissions", "ClaimOpened"].append(omissions.on_claim_opened)
    handlers["Omissions", "ClaimAnswered"].append(omissions.on_claim_answered)
    handlers["Omissions", "Compensated"].append(omissions.on_compensated)
    handlers["JobEscrow", "JobOpened"].append(submission.on_job_opened)
    handlers["JobEscrow", "JobSettled"].append(settlement.on_job_settled)
    handlers["JobEscrow", "JobCancelled"].append(cancellation.on_job_cancelled)
    handlers["JobEscrow", "JobRefunded"].append(settlement.on_job_refunded)
    handlers["JobEscrow", "JobRefunded"].append(cancellation.on_job_refunded)
    handlers["JobEscrow", "BatchPosted"].append(claims.on_batch_posted)
    handlers["JobEscrow", "BatchVetoed"].append(settlement.on_batch_vetoed)
    handlers["JobEscrow", "SettlementReverted"].append(settlement.on_settlement_reverted)
    handlers["JobEscrow", "UnitWithheld"].append(contested_units.on_unit_withheld)
    handlers["JobEscrow", "UnitRestored"].append(contested_units.on_unit_restored)
    handlers["JobEscrow", "UnitRestored"].append(claims.on_unit_restored)
    handlers["Disputes", "DisputeEnded"].append(contested_units.on_dispute_ended)
    for key, handler in disputes_chain_events.HANDLERS.items():
        handlers[key].append(handler)
    handlers["Disputes", "DisputeEnded"].append(decisions.on_dispute_ended)
    handlers["JobEscrow", "Claimed"].append(claims.on_claimed)
    return handlers


INTENT_HANDLERS: Mapping[str, IntentHandler] = {
    "open_job": submission.on_deposit_intent,
    "settle": settlement.on_settlement_intent,
    "collect_fees": claims.on_fees_intent,
    "post_rewards": rewards.on_post_intent,
}
