"""Reverts of acts in words that say what to do."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from zoo_protocol.acts.parameters import duration, exact_zen
from zoo_protocol.acts.roles import role_name
from zoo_protocol.reverts import decode_error, decode_revert

_Fields = Mapping[str, Any]


def explain(data: bytes) -> tuple[str, str]:
    """Return (error name, sentence) of a refused call's revert data."""
    name, fields = decode_error(data)
    if name in _WORDS:
        return name, _WORDS[name](fields)
    name, text = decode_revert(data)
    return name, f"The contract refuses the call: {name}({text})."


def _time(unix: int) -> str:
    return f"{datetime.fromtimestamp(unix, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _role(fields: _Fields) -> str:
    role = role_name(fields["neededRole"])
    return f"{fields['account']} lacks the role {role}. Use an account that holds it."


def _state(fields: _Fields) -> str:
    expected = int(fields["expectedStates"], 16)
    if expected == 1 << 2:
        return "The operation is not due: it waits for its delay, or it was executed or cancelled."
    if expected == 1 << 0:
        return "The same operation is scheduled or executed. Propose it with another salt."
    return "The operation is not pending: it was executed, cancelled or never scheduled."


def _funds(fields: _Fields) -> str:
    return f"{exact_zen(fields['requested'])} exceed the fund's {exact_zen(fields['available'])}. Propose less."


_WORDS: Mapping[str, Callable[[_Fields], str]] = {
    "AccessControlUnauthorizedAccount": _role,
    "TimelockUnauthorizedCaller": lambda f: f"{f['caller']} is not the timelock. Propose this change in the timelock.",
    "TimelockUnexpectedOperationState": _state,
    "TimelockInsufficientDelay": lambda f: (
        f"The delay is {duration(f['delay'])}; expected at least {duration(f['minDelay'])}. Prepare the act again."
    ),
    "TimelockUnexecutedPredecessor": lambda f: f"Operation {f['predecessorId']} must be executed first.",
    "FailedCall": lambda _: "A call of the operation fails without a reason.",
    "InsufficientFunds": _funds,
    "GrantsOnly": lambda _: "This fund pays grants only. Use the act treasury.grant.",
    "UnknownDestination": lambda f: f"The treasury has no fund {f['destination']}.",
    "SpendToItself": lambda _: "The recipient is the treasury itself. Name another account.",
    "ZeroAmount": lambda _: "The amount is 0. Give an amount above 0.",
    "NoAmount": lambda _: "The amount is 0. Give an amount above 0.",
    "NotJailed": lambda f: f"{f['provider']} is not in jail.",
    "FeeTooHigh": lambda f: f"The fee of {f['feeBps']} bps is too high. The contract's maximum is 1000 bps.",
    "PenaltyTooHigh": lambda f: (
        f"A penalty of {f['bps']} bps with a share of {f['disputeShareBps']} bps is too high. "
        "The maxima are 10000 and 5000 bps."
    ),
    "PenaltyTooLow": lambda f: f"The penalty is {f['bps']} bps; expected at least {f['least']} bps for this offence.",
    "InvalidApy": lambda f: f"The yearly rate is {f['apyBps']} bps; expected 1500 to 2500 bps.",
    "UnknownBatch": lambda _: "No batch under challenge has these contents. It was vetoed, or the contents differ.",
    "ChallengePeriodOver": lambda f: f"The challenge period ended at {_time(f['claimableAt'])}. A veto is too late.",
    "ChallengePeriodRunning": lambda f: f"The challenge period runs until {_time(f['claimableAt'])}. Repeat it then.",
    "NothingPending": lambda _: "No reward epoch is pending. It was vetoed, or its challenge period is over.",
    "EnforcedPause": lambda _: "Intake is paused. Wait for the end of the pause.",
    "ExpectedPause": lambda _: "Intake is not paused.",
    "InsufficientStake": lambda f: (
        f"The stake is {exact_zen(f['available'])}; {exact_zen(f['requested'])} were requested."
    ),
    "NothingToWithdraw": lambda _: "No stake is unbonding. Begin with staking.unstake.",
    "StillUnbonding": lambda f: f"The stake unbonds until {_time(f['releaseAt'])}. Repeat it then.",
    "NotPayer": lambda f: f"{f['caller']} is not the payer of this job. Only its payer can cancel it.",
    "JobNotOpen": lambda _: "The job is not open in the escrow: it is settled, refunded or unknown.",
    "AlreadyCancelled": lambda f: f"The job ends already at {_time(f['settleBy'])}.",
    "RefundTooEarly": lambda f: f"The job can be refunded after {_time(f['settleBy'])}.",
    "AlreadyClaimed": lambda f: f"The pay of batch {f['batchId']} is claimed already.",
    "InvalidProof": lambda _: "The proof does not belong to the epoch in force. Read the rewards again.",
    "NothingToClaim": lambda _: "Everything that was earned is claimed already.",
    "NothingToRelease": lambda _: "No emission is due.",
    "InvalidRecipient": lambda f: f"{f['to']} cannot receive this payment. Name another account.",
    "ERC20InsufficientAllowance": lambda f: (
        f"The contract may take {exact_zen(f['allowance'])} of the {exact_zen(f['needed'])}. Approve the amount first."
    ),
    "ERC20InsufficientBalance": lambda f: (
        f"The account has {exact_zen(f['balance'])}; {exact_zen(f['needed'])} are needed."
    ),
    "InsufficientBalance": lambda f: (
        f"The balance in the escrow is {exact_zen(f['available'])}; {exact_zen(f['needed'])} are needed."
    ),
    "AccessControlEnforcedDefaultAdminRules": lambda _: (
        "The admin role changes by a transfer with a delay only, not by a grant."
    ),
}
