"""Parameters of the contracts by final events, with the changes that wait in the timelock."""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent
from market.chain.service import final_events_named
from market.domain.network import NetworkParameters
from market.governance import service
from market.governance.schemas import OperationView, ParameterValue
from market.platform.db.base import from_unix
from zoo_protocol.acts.calls import Contracts
from zoo_protocol.acts.parameters import duration, exact_zen
from zoo_protocol.acts.table import OFFENCES, TIERS

_MAX_PENDING = 200


def parameters(
    session: Session, contracts: Contracts, network: NetworkParameters, now: datetime
) -> list[ParameterValue]:
    """Return each parameter that an act changes: present value, last change, pending changes.

    A minimum stake has no event until its first change; the network's document has it.
    """
    pending = service.operations(session, contracts, now, pending=True, limit=_MAX_PENDING)
    found = [
        _value(pending, "escrow.set-fee", "Fee", _last(session, "JobEscrow", "FeeChanged"), "feeBps"),
        _value(pending, "rewards.set-rate", "Yearly uptime reward", _last(session, "Rewards", "ApySet"), "apyBps"),
    ]
    penalties = _by_key(session, "ProviderStaking", "PenaltySet", "offence")
    for offence, name in OFFENCES:
        event = penalties.get(offence)
        label = f"Penalty for {name}"
        one = _value(pending, "staking.set-penalty", label, event, "bps", only=f"penalty for {name} ")
        if event is not None:
            one.words += f" of the stake; the dispute's share is {_percent(event.args['disputeShareBps'])}"
        found.append(one)
    stakes = _by_key(session, "ProviderStaking", "MinimumStakeSet", "tier")
    first = [network.verifier_minimum_stake_wei, *(tier.minimum_stake_wei for tier in network.tiers)]
    for tier, name in TIERS:
        event = stakes.get(tier)
        wei = first[tier] if event is None else int(event.args["amount"])
        label, only = f"Minimum stake {name}", f"tier {name} "
        found.append(_parameter(pending, "staking.set-minimum", label, wei, exact_zen(wei), event, only=only))
    seconds = contracts.delay_seconds
    found.append(_parameter(pending, "timelock.set-delay", "Timelock's delay", seconds, duration(seconds), None))
    return found


def _value(
    pending: list[OperationView], act: str, label: str, event: ChainEvent | None, name: str, *, only: str = ""
) -> ParameterValue:
    bps = 0 if event is None else int(event.args[name])
    return _parameter(pending, act, label, bps, _percent(bps), event, only=only)


def _parameter(
    pending: list[OperationView],
    act: str,
    label: str,
    value: int,
    words: str,
    event: ChainEvent | None,
    *,
    only: str = "",
) -> ParameterValue:
    return ParameterValue(
        act=act,
        label=label,
        value=value,
        words=words,
        changed_at=None if event is None else from_unix(event.timestamp),
        tx_hash=None if event is None else event.tx_hash,
        pending=[one for one in pending if one.act == act and only in one.words[0]],
    )


def _percent(bps: int) -> str:
    return f"{bps / 100:g} %"


def _last(session: Session, contract: str, event: str) -> ChainEvent | None:
    found = final_events_named(session, contract, event)
    return found[-1] if found else None


def _by_key(session: Session, contract: str, event: str, key: str) -> Mapping[int, ChainEvent]:
    return {int(one.args[key]): one for one in final_events_named(session, contract, event)}
