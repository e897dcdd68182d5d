"""Handlers that record final chain events as journals (chart: ``market.ledger``)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent, Deployment
from market.domain.network import NETWORKS
from market.ledger.service import balance, post

Handler = Callable[[Session, ChainEvent], None]
_POSTED, _PENDING = "rewards:posted", "rewards:pending"
_ZERO_ADDRESS = "0x" + "00" * 20  # a transfer from it creates tokens, one to it destroys them


def handlers(deployment: Deployment) -> dict[tuple[str, str], Handler]:
    """Return the ledger's handlers by (contract, event), for the indexer."""
    holders = {
        deployment.address("JobEscrow"): "escrow",
        deployment.address("ProviderStaking"): "stake",
        deployment.address("Treasury"): "treasury",
        deployment.address("Rewards"): "rewards",
        deployment.address("Disputes"): "disputes",
        deployment.address("Omissions"): "omissions",
    }

    # Terms of the contracts; the events do not contain them.
    stake = NETWORKS[deployment.network].omissions.deposit_wei
    bond = NETWORKS[deployment.network].disputes.bond_wei

    def on_transfer(session: Session, event: ChainEvent) -> None:
        """Record a transfer to or from a contract, an issuance or a burn; ignore others."""
        payer, payee = event.args["from"], event.args["to"]
        source = "issuance" if payer == _ZERO_ADDRESS else holders.get(payer, f"wallet:{payer}")
        target = "burned" if payee == _ZERO_ADDRESS else holders.get(payee, f"wallet:{payee}")
        if source != target and not (source.startswith("wallet:") and target.startswith("wallet:")):
            _move(session, event, source, target, event.args["value"])

    def on_omission_claimed(session: Session, event: ChainEvent) -> None:
        _move(session, event, "omissions", _omission(event.args), stake)

    def on_omission_answered(session: Session, event: ChainEvent) -> None:
        """Add the claim's deposit to the bond, because the commitment was included."""
        _move(session, event, _omission(event.args), "bond", stake)

    def on_omission_compensated(session: Session, event: ChainEvent) -> None:
        """Return the deposit to the provider, with a compensation from the bond."""
        taken = [(_omission(event.args), -stake), ("bond", -event.args["compensation"])]
        _divide(session, event, "omissions", taken)

    def on_dispute_opened(session: Session, event: ChainEvent) -> None:
        _move(session, event, "disputes", _dispute(event.args), bond)

    return {
        ("ZenToken", "Transfer"): on_transfer,
        ("JobEscrow", "JobOpened"): on_job_opened,
        ("JobEscrow", "JobSettled"): on_job_settled,
        ("JobEscrow", "SettlementReverted"): on_settlement_reverted,
        ("JobEscrow", "Claimed"): on_claimed,
        ("JobEscrow", "FeesCollected"): on_fees_collected,
        ("JobEscrow", "UnitWithheld"): on_unit_withheld,
        ("JobEscrow", "UnitRestored"): on_unit_restored,
        ("JobEscrow", "UnitStruck"): on_unit_struck,
        ("JobEscrow", "JobRefunded"): on_job_refunded,
        ("Disputes", "DisputeOpened"): on_dispute_opened,
        ("Disputes", "Credited"): on_dispute_credited,
        ("Disputes", "DisputeEnded"): on_dispute_ended,
        ("Disputes", "Withdrawn"): on_credits_withdrawn,
        ("Omissions", "Deposited"): on_bond_deposited,
        ("Omissions", "Withdrawn"): on_bond_withdrawn,
        ("Omissions", "ClaimOpened"): on_omission_claimed,
        ("Omissions", "ClaimAnswered"): on_omission_answered,
        ("Omissions", "Compensated"): on_omission_compensated,
        ("Rewards", "EpochPosted"): on_rewards_posted,
        ("Rewards", "EpochVetoed"): on_rewards_vetoed,
        ("Rewards", "Claimed"): on_rewards_claimed,
        ("ProviderStaking", "Staked"): on_staked,
        ("ProviderStaking", "Withdrawn"): on_stake_left,
        ("ProviderStaking", "Slashed"): on_stake_left,
    }


def on_job_opened(session: Session, event: ChainEvent) -> None:
    _move(session, event, "escrow", f"escrow:{event.args['jobId']}", event.args["budget"])


def on_job_settled(session: Session, event: ChainEvent) -> None:
    """Move pay and fee to the batch; the refund leaves the contract."""
    args = event.args
    parts = [(_pay(args), args["paid"]), (_fee(args), args["fee"]), ("escrow", args["refund"])]
    _divide(session, event, f"escrow:{args['jobId']}", parts)


def on_settlement_reverted(session: Session, event: ChainEvent) -> None:
    """Return a vetoed batch's amounts to the job, or to the payer if the job was refunded."""
    args = event.args
    target = "escrow" if args["refunded"] else f"escrow:{args['jobId']}"
    _divide(session, event, target, [(_pay(args), -args["net"]), (_fee(args), -args["fee"])])


def on_claimed(session: Session, event: ChainEvent) -> None:
    _move(session, event, _pay(event.args), "escrow", event.args["amount"])


def on_fees_collected(session: Session, event: ChainEvent) -> None:
    _move(session, event, _fee(event.args), "escrow", event.args["amount"])


def on_unit_withheld(session: Session, event: ChainEvent) -> None:
    args = event.args
    _divide(session, event, _withheld(args), [(_pay(args), -args["net"]), (_fee(args), -args["fee"])])


def on_unit_restored(session: Session, event: ChainEvent) -> None:
    """Return a unit's pay to its batch, or pay it out if the provider has claimed the rest."""
    args = event.args
    target = "escrow" if args["paidOut"] else _pay(args)
    _divide(session, event, _withheld(args), [(target, args["net"]), (_fee(args), args["fee"])])


def on_unit_struck(session: Session, event: ChainEvent) -> None:
    _move(session, event, _withheld(event.args), "escrow", event.args["amount"])


def on_job_refunded(session: Session, event: ChainEvent) -> None:
    _move(session, event, f"escrow:{event.args['jobId']}", "escrow", event.args["amount"])


def on_dispute_credited(session: Session, event: ChainEvent) -> None:
    _move(session, event, _dispute(event.args), f"credit:{event.args['account']}", event.args["amount"])


def on_dispute_ended(session: Session, event: ChainEvent) -> None:
    """Close the dispute's account: a rest is burned, a deficit came from a penalty."""
    _move(session, event, _dispute(event.args), "disputes", balance(session, _dispute(event.args)))


def on_credits_withdrawn(session: Session, event: ChainEvent) -> None:
    _move(session, event, f"credit:{event.args['account']}", "disputes", event.args["amount"])


def on_bond_deposited(session: Session, event: ChainEvent) -> None:
    _move(session, event, "omissions", "bond", event.args["amount"])


def on_bond_withdrawn(session: Session, event: ChainEvent) -> None:
    _move(session, event, "bond", "omissions", event.args["amount"])


def on_rewards_posted(session: Session, event: ChainEvent) -> None:
    """Record an epoch's rewards as pending; the epoch before can no longer be vetoed."""
    settled = balance(session, _PENDING)
    promised = sum(event.args[f"{part}Total"] for part in ("base", "bandwidth", "verifier"))
    _divide(session, event, "rewards", [(_PENDING, promised - settled), (_POSTED, settled)])


def on_rewards_vetoed(session: Session, event: ChainEvent) -> None:
    _move(session, event, _PENDING, "rewards", balance(session, _PENDING))


def on_rewards_claimed(session: Session, event: ChainEvent) -> None:
    _move(session, event, _POSTED, "rewards", event.args["amount"])


def on_staked(session: Session, event: ChainEvent) -> None:
    _move(session, event, "stake", f"stake:{event.args['provider']}", event.args["amount"])


def on_stake_left(session: Session, event: ChainEvent) -> None:
    _move(session, event, f"stake:{event.args['provider']}", "stake", event.args["amount"])


def _pay(args: Mapping[str, Any]) -> str:
    return f"pay:{args['batchId']}"


def _fee(args: Mapping[str, Any]) -> str:
    return f"fee:{args['batchId']}"


def _omission(args: Mapping[str, Any]) -> str:
    return f"omission:{args['unitId']}"


def _dispute(args: Mapping[str, Any]) -> str:
    return f"dispute:{args['disputeId']}"


def _withheld(args: Mapping[str, Any]) -> str:
    return f"withheld:{args['unitId']}"


def _move(session: Session, event: ChainEvent, source: str, target: str, amount: int) -> None:
    _divide(session, event, source, [(target, amount)])


def _divide(session: Session, event: ChainEvent, source: str, parts: Sequence[tuple[str, int]]) -> None:
    """Post one journal from ``source`` to each target; negative amounts flow back."""
    moved = [(account, amount) for account, amount in parts if amount]
    if not moved:
        return  # the token allows transfers of 0
    post(
        session,
        kind=event.name,
        key=f"{event.tx_hash}:{event.log_index}",
        lines=[(source, -sum(amount for _, amount in moved)), *moved],
        block=event.block_number,
    )
