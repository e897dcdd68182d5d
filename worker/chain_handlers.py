"""Handlers of final chain events and of transaction intents."""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial

from market.chain.contracts.codec import Deployment
from market.chain.indexer import EventHandler
from market.chain.transactions.sender import IntentHandler
from market.domain.network import NetworkParameters
from market.governance import chain_events as governance_chain_events
from market.ledger import chain_events as ledger_chain_events
from market.orders import amendments, submission
from market.payments.rewards import service as rewards
from market.payments.settlement import claims, contested_units
from market.payments.settlement import service as settlement
from market.providers import lifecycle as providers
from market.providers.attestation import chain_events as attestation_chain_events
from market.providers.record import uptime
from market.verification.decisions import unit_outcomes
from market.verification.disputes import chain_events as disputes_chain_events
from market.verification.penalties import service as penalties
from market.verification.windows import omissions
from market.verification.windows import service as windows

STAKE_EVENTS = ("Staked", "UnstakeRequested", "Withdrawn", "Slashed", "Jailed", "Released")


def event_handlers(network: NetworkParameters, deployment: Deployment) -> Mapping[tuple[str, str], list[EventHandler]]:
    """Return the handlers of each final event; the ledger's come first."""
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
    handlers["JobEscrow", "JobCancelled"].append(amendments.on_escrow_ended)
    handlers["JobEscrow", "JobRefunded"].append(settlement.on_job_refunded)
    handlers["JobEscrow", "JobRefunded"].append(amendments.on_escrow_ended)
    handlers["JobEscrow", "BatchPosted"].append(claims.on_batch_posted)
    handlers["JobEscrow", "BatchVetoed"].append(settlement.on_batch_vetoed)
    handlers["JobEscrow", "SettlementReverted"].append(settlement.on_settlement_reverted)
    handlers["JobEscrow", "UnitWithheld"].append(contested_units.on_unit_withheld)
    handlers["JobEscrow", "UnitRestored"].append(contested_units.on_unit_restored)
    handlers["JobEscrow", "UnitRestored"].append(claims.on_unit_restored)
    handlers["Disputes", "DisputeEnded"].append(contested_units.on_dispute_ended)
    for key, handler in disputes_chain_events.HANDLERS.items():
        handlers[key].append(handler)
    handlers["Disputes", "DisputeEnded"].append(unit_outcomes.on_dispute_ended)
    handlers["JobEscrow", "Claimed"].append(claims.on_claimed)
    for key, handler in governance_chain_events.HANDLERS.items():
        handlers[key].append(handler)
    return handlers


INTENT_HANDLERS: Mapping[str, IntentHandler] = {
    "open_job": submission.on_open_intent,
    "settle": settlement.on_settlement_intent,
    "collect_fees": claims.on_fees_intent,
    "post_rewards": rewards.on_post_intent,
}
