"""The table of acts: calls of the contracts that people make, by role and delay.

Each act is one call of one function. An act of the timelock is proposed, waits for the timelock's delay, and is then
executed or cancelled (:class:`Stage`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from zoo_protocol.acts.parameters import Kind, Parameter
from zoo_protocol.acts.roles import roles_of

TIERS = ((0, "verifier"), (1, "bronze"), (2, "silver"), (3, "gold"), (4, "iron"))
OFFENCES = (
    (1, "downtime"),
    (2, "incorrect computation"),
    (3, "bandwidth violation"),
    (4, "withheld data"),
    (5, "wrong replay"),
    (6, "equivocation"),
    (7, "refused data"),
)
FUNDS = ((0, "protocol development"), (1, "security audits"))
ADMINISTERED = (
    "Timelock",
    "ZenToken",
    "Treasury",
    "ProviderStaking",
    "WorkWindows",
    "JobEscrow",
    "Omissions",
    "Rewards",
    "Attestations",
)
"""Contracts with roles."""


class Stage(StrEnum):
    """Step of an act: its own call, or a call of the timelock."""

    DIRECT = "direct"
    PROPOSE = "propose"
    EXECUTE = "execute"
    CANCEL = "cancel"


STAGE_ROLES: Mapping[Stage, str] = {
    Stage.PROPOSE: "PROPOSER_ROLE",
    Stage.EXECUTE: "EXECUTOR_ROLE",
    Stage.CANCEL: "CANCELLER_ROLE",
}
"""Roles of the timelock by stage. The zero address as executor admits any account."""


class Delay(StrEnum):
    """Time between an act and its effect."""

    NONE = "none"
    TIMELOCK = "timelock"
    UNBONDING = "unbonding"


@dataclass(frozen=True, slots=True)
class Act:
    """One row of the table.

    Attributes:
        key: stable name, which is also typed to confirm a dangerous act.
        words: sentence with the parameters in braces.
        role: role in ``contract`` that the caller needs; None: any account, on its own ZEN or job.
        is_dangerous: it takes a typed confirmation.
    """

    key: str
    title: str
    contract: str
    function: str
    words: str
    parameters: tuple[Parameter, ...] = ()
    role: str | None = None
    delay: Delay = Delay.NONE
    is_dangerous: bool = False

    @property
    def via_timelock(self) -> bool:
        return self.delay is Delay.TIMELOCK


def _admin(key: str, title: str, contract: str, function: str, words: str, *parameters: Parameter, role: str) -> Act:
    return Act(key, title, contract, function, words, parameters, role, Delay.TIMELOCK, is_dangerous=True)


def _role_acts(contract: str) -> tuple[Act, Act]:
    names = ", ".join(name.removesuffix("_ROLE").lower() for name in roles_of(contract))
    parameters = (Parameter("role", f"Role: {names}", Kind.ROLE), Parameter("account", "Account", Kind.ADDRESS))
    slug, admin = contract.lower(), "DEFAULT_ADMIN_ROLE"
    grant = f"Give {{account}} the role {{role}} of {contract}."
    revoke = f"Take the role {{role}} of {contract} from {{account}}."
    return (
        _admin(f"{slug}.grant-role", "Grant a role", contract, "grantRole", grant, *parameters, role=admin),
        _admin(f"{slug}.revoke-role", "Revoke a role", contract, "revokeRole", revoke, *parameters, role=admin),
    )


_AMOUNT = Parameter("amount", "Amount in ZEN", Kind.ZEN)
_PURPOSE = Parameter("purpose", "Purpose: document's CID or text", Kind.PURPOSE)
_PROVIDER = Parameter("provider", "Provider", Kind.ADDRESS)
_TO = Parameter("to", "Recipient", Kind.ADDRESS)
_PROOF = Parameter("proof", "Proof", Kind.LIST)
_ADMIN = "DEFAULT_ADMIN_ROLE"

_ROWS: tuple[Act, ...] = (
    _admin(
        "treasury.grant", "Pay a community grant", "Treasury", "grant",
        "Pay {amount} of the community grants to {recipient}. Purpose: {purpose}.",
        Parameter("recipient", "Recipient", Kind.ADDRESS), _AMOUNT, _PURPOSE, role="TREASURER_ROLE",
    ),
    _admin(
        "treasury.spend", "Spend from a fund", "Treasury", "spend",
        "Pay {amount} of {destination} to {to}. Purpose: {purpose}.",
        Parameter("destination", "Fund", Kind.CHOICE, FUNDS), _TO, _AMOUNT, _PURPOSE, role="TREASURER_ROLE",
    ),
    _admin(
        "escrow.set-fee", "Set the fee", "JobEscrow", "setFee", "Set the fee of new jobs to {newFeeBps} of their pay.",
        Parameter("newFeeBps", "Fee in basis points", Kind.BPS), role=_ADMIN,
    ),
    _admin(
        "staking.set-penalty", "Set a penalty", "ProviderStaking", "setPenalty",
        "Set the penalty for {offence} to {bps} of the stake, with {disputeShareBps} of it to the dispute.",
        Parameter("offence", "Offence", Kind.CHOICE, OFFENCES),
        Parameter("bps", "Penalty in basis points", Kind.BPS),
        Parameter("disputeShareBps", "Dispute's share in basis points", Kind.BPS), role=_ADMIN,
    ),
    _admin(
        "staking.set-minimum", "Set a minimum stake", "ProviderStaking", "setMinimumStake",
        "Set the minimum stake of the tier {tier} to {amount}.",
        Parameter("tier", "Tier", Kind.CHOICE, TIERS), _AMOUNT, role=_ADMIN,
    ),
    _admin(
        "rewards.set-rate", "Set the reward rate", "Rewards", "setApy",
        "Set the yearly uptime reward to {newApyBps} of the stake.",
        Parameter("newApyBps", "Yearly rate in basis points", Kind.BPS), role=_ADMIN,
    ),
    _admin(
        "attestations.set-measurement", "Accept or refuse a measurement", "Attestations", "setMeasurement",
        "Accept attestations of the measurement {measurement}: {accepted}.",
        Parameter("measurement", "Measurement", Kind.HASH), Parameter("accepted", "Accepted", Kind.FLAG), role=_ADMIN,
    ),
    _admin(
        "timelock.set-delay", "Set the timelock's delay", "Timelock", "updateDelay",
        "Set the delay of the timelock to {newDelay}.",
        Parameter("newDelay", "Delay in seconds", Kind.SECONDS), role="the timelock",
    ),
    _admin(
        "staking.release", "Release from jail", "ProviderStaking", "release", "Release {provider} from jail.",
        _PROVIDER, role=_ADMIN,
    ),
    Act(
        "escrow.veto", "Veto a settlement batch", "JobEscrow", "veto",
        "Veto settlement batch {batchId}: its jobs ({lines}) get their pay back, and its providers are not paid.",
        (
            Parameter("batchId", "Batch", Kind.NUMBER),
            Parameter("claims", "Root of claims", Kind.HASH),
            Parameter("units", "Root of units", Kind.HASH),
            Parameter("lines", "Lines", Kind.LIST),
        ),
        "GUARDIAN_ROLE", is_dangerous=True,
    ),
    Act(
        "rewards.veto", "Veto the pending reward epoch", "Rewards", "veto",
        "Veto the pending reward epoch. Its rewards are not paid.", role="GUARDIAN_ROLE", is_dangerous=True,
    ),
    Act(
        "escrow.pause", "Pause new jobs", "JobEscrow", "pause",
        "Pause deposits and new jobs for at most 72 hours. Running jobs, refunds and withdrawals go on.",
        role="PAUSER_ROLE", is_dangerous=True,
    ),
    Act(
        "escrow.unpause", "End the pause of new jobs", "JobEscrow", "unpause", "Accept deposits and new jobs again.",
        role="PAUSER_ROLE",
    ),
    Act(
        "staking.pause", "Pause new stakes", "ProviderStaking", "pause",
        "Pause new stakes for at most 72 hours. Withdrawals go on.", role="PAUSER_ROLE", is_dangerous=True,
    ),
    Act(
        "staking.unpause", "End the pause of new stakes", "ProviderStaking", "unpause", "Accept new stakes again.",
        role="PAUSER_ROLE",
    ),
    Act(
        "token.approve", "Let a contract take ZEN", "ZenToken", "approve",
        "Let {spender} take up to {value} from your wallet.",
        (Parameter("spender", "Contract", Kind.ADDRESS), Parameter("value", "Amount in ZEN", Kind.ZEN)),
    ),
    Act("staking.stake", "Add stake", "ProviderStaking", "stake", "Stake {amount}.", (_AMOUNT,)),
    Act(
        "staking.unstake", "Begin to unbond stake", "ProviderStaking", "requestUnstake",
        "Begin to unbond {amount}. It can be slashed until its withdrawal.", (_AMOUNT,), delay=Delay.UNBONDING,
    ),
    Act("staking.withdraw", "Withdraw unbonded stake", "ProviderStaking", "withdraw", "Withdraw all unbonded stake."),
    Act(
        "escrow.claim", "Claim pay", "JobEscrow", "claim", "Claim pay from batches ({claims}) to {to}.",
        (_TO, Parameter("claims", "Claims", Kind.LIST)),
    ),
    Act(
        "rewards.claim", "Claim rewards", "Rewards", "claimTo", "Claim rewards up to {cumulative} in total to {to}.",
        (_TO, Parameter("cumulative", "Earned in total, in ZEN", Kind.ZEN), _PROOF),
    ),
    Act(
        "escrow.cancel-job", "Cancel a job", "JobEscrow", "cancel",
        "Cancel job {jobId}. Verified work is paid, and the rest is refunded.",
        (Parameter("jobId", "Job", Kind.HASH),), is_dangerous=True,
    ),
    Act(
        "escrow.refund-job", "Refund a job", "JobEscrow", "refund",
        "Refund the escrow of job {jobId} to its payer. It must be past its settlement time.",
        (Parameter("jobId", "Job", Kind.HASH),),
    ),
    Act(
        "escrow.withdraw", "Withdraw from the balance", "JobEscrow", "withdraw",
        "Withdraw {amount} from your balance to {to}.", (_AMOUNT, _TO),
    ),
    Act(
        "emission.release", "Mint the emission due", "Emission", "release",
        "Mint the emission that is due to the rewards contract.",
    ),
)  # fmt: skip

ACTS: Mapping[str, Act] = {
    act.key: act for act in (*_ROWS, *(act for contract in ADMINISTERED for act in _role_acts(contract)))
}
"""All acts by key."""


def act_of(contract: str, function: str) -> Act | None:
    """Return the act of a function; None if the table has none."""
    return next((act for act in ACTS.values() if (act.contract, act.function) == (contract, function)), None)
