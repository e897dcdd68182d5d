"""Governance for pages: roles that acts take, pauses of intake, queued payments."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from market.chain.contracts.codec import Deployment, encode_call
from market.chain.service import final_events_named
from market.domain.network import NetworkParameters
from market.governance import service
from market.governance.schemas import ActView, OperationView, RoleHolder
from market.platform.db.base import from_unix
from zoo_protocol.acts.calls import TIMELOCK
from zoo_protocol.acts.parameters import Kind
from zoo_protocol.acts.table import ACTS, STAGE_ROLES, Stage

ANY_ACCOUNT = "0x0000000000000000000000000000000000000000"
"""Holder of a role of the timelock that any account then has."""
MAX_PAUSE = timedelta(hours=72)
"""Length of a pause: MAX_PAUSE of ZenIntake.sol."""
_INTAKES = (("JobEscrow", "New jobs and deposits", "escrow"), ("ProviderStaking", "New stakes", "staking"))
_PAYMENTS = ("treasury.grant", "treasury.spend")
_MAX_PENDING = 200


@dataclass(frozen=True, slots=True)
class RoleNeed:
    """Role of a contract that an act takes. ``role`` None: any account has it."""

    contract: str
    role: str | None
    is_held: bool
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Intake:
    """Intake of a contract.

    Attributes:
        acts: first part of the keys of its acts.
        paused_until: None if it is open.
    """

    title: str
    acts: str
    paused_until: datetime | None


def need_of_act(act: ActView, holders: Sequence[RoleHolder], address: str) -> RoleNeed:
    """Return the role that the first transaction of an act takes."""
    if ACTS[act.key].via_timelock:
        return need_of_stage(Stage.PROPOSE, holders, address)
    return _need(act.contract, act.role, holders, address)


def need_of_stage(stage: Stage, holders: Sequence[RoleHolder], address: str) -> RoleNeed:
    """Return the role of the timelock that a step takes."""
    return _need(TIMELOCK, STAGE_ROLES[stage], holders, address)


def is_typed(act: ActView) -> bool:
    """Return True if a person can type all arguments of the act."""
    return all(one.kind is not Kind.LIST for one in act.parameters)


def intakes(session: Session, now: datetime) -> list[Intake]:
    """Return the intakes with their pauses, by final events."""
    return [Intake(title, acts, _paused_until(session, contract, now)) for contract, title, acts in _INTAKES]


def queued_payments(
    session: Session, deployment: Deployment, network: NetworkParameters, now: datetime
) -> list[OperationView]:
    """Return payments of the treasury that wait in the timelock."""
    return [one for one in _pending(session, deployment, network, now) if one.act in _PAYMENTS]


def queued_release(
    session: Session, deployment: Deployment, network: NetworkParameters, now: datetime, address: str
) -> OperationView | None:
    """Return the release of a node from jail that waits in the timelock; None without one."""
    data = "0x" + encode_call("ProviderStaking", "release", [address]).hex()
    pending = _pending(session, deployment, network, now)
    return next((one for one in pending if one.act == "staking.release" and one.calls[0].data == data), None)


def _pending(
    session: Session, deployment: Deployment, network: NetworkParameters, now: datetime
) -> list[OperationView]:
    contracts = service.contracts_of(session, deployment, network)
    return service.operations(session, contracts, now, pending=True, limit=_MAX_PENDING)


def _need(contract: str, role: str | None, holders: Sequence[RoleHolder], address: str) -> RoleNeed:
    found = tuple(one.account for one in holders if (one.contract, one.role) == (contract, role))
    if role is None or ANY_ACCOUNT in found:
        return RoleNeed(contract, None, is_held=True, holders=())
    return RoleNeed(contract, role, address in found, found)


def _paused_until(session: Session, contract: str, now: datetime) -> datetime | None:
    begun, ended = (
        max((from_unix(event.timestamp) for event in final_events_named(session, contract, name)), default=None)
        for name in ("Paused", "Unpaused")
    )
    if begun is None or (ended is not None and ended >= begun) or begun + MAX_PAUSE <= now:
        return None
    return begun + MAX_PAUSE
