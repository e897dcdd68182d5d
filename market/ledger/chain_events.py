"""Handlers that record final chain events as journals (chart: ``market.ledger``)."""

from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from market.chain.contracts.codec import ChainEvent, Deployment
from market.domain.network import NETWORKS
from market.ledger.service import balance, post

Handler = Callable[[Session, ChainEvent], None]
_JOB, _PAY, _FEE, _WITHHELD = "escrow:{jobId}", "pay:{batchId}", "fee:{batchId}", "withheld:{unitId}"
_BALANCE = "balance:{payer}"
_DISPUTE, _OMISSION = "dispute:{disputeId}", "omission:{unitId}"
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
            _divide(session, event, source, [(target, event.args["value"])])

    def on_omission_compensated(session: Session, event: ChainEvent) -> None:
        """Return the deposit to the provider, with a compensation from the bond."""
        _divide(session, event, "omissions", [(_OMISSION, -stake), ("bond", -event.args["compensation"])])

    return {
        ("ZenToken", "Transfer"): on_transfer,
        ("JobEscrow", "Deposited"): _moves("escrow", _BALANCE),
        ("JobEscrow", "Withdrawn"): _moves(_BALANCE, "escrow"),
        ("JobEscrow", "JobOpened"): _moves(_BALANCE, _JOB, "budget"),
        ("JobEscrow", "JobSettled"): on_job_settled,
        ("JobEscrow", "SettlementReverted"): on_settlement_reverted,
        ("JobEscrow", "Claimed"): _moves(_PAY, "escrow"),
        ("JobEscrow", "FeesCollected"): _moves(_FEE, "escrow"),
        ("JobEscrow", "UnitWithheld"): on_unit_withheld,
        ("JobEscrow", "UnitRestored"): on_unit_restored,
        ("JobEscrow", "UnitStruck"): _moves(_WITHHELD, "escrow"),
        ("JobEscrow", "JobRefunded"): _moves(_JOB, "escrow"),
        ("Disputes", "DisputeOpened"): _moves("disputes", _DISPUTE, bond),
        ("Disputes", "Credited"): _moves(_DISPUTE, "credit:{account}"),
        ("Disputes", "DisputeEnded"): on_dispute_ended,
        ("Disputes", "Withdrawn"): _moves("credit:{account}", "disputes"),
        ("Omissions", "Deposited"): _moves("omissions", "bond"),
        ("Omissions", "Withdrawn"): _moves("bond", "omissions"),
        ("Omissions", "ClaimOpened"): _moves("omissions", _OMISSION, stake),
        ("Omissions", "ClaimAnswered"): _moves(_OMISSION, "bond", stake),  # the commitment was included
        ("Omissions", "Compensated"): on_omission_compensated,
        ("Rewards", "EpochPosted"): on_rewards_posted,
        ("Rewards", "EpochVetoed"): on_rewards_vetoed,
        ("Rewards", "Claimed"): _moves(_POSTED, "rewards"),
        ("ProviderStaking", "Staked"): _moves("stake", "stake:{provider}"),
        ("ProviderStaking", "Withdrawn"): _moves("stake:{provider}", "stake"),
        ("ProviderStaking", "Slashed"): _moves("stake:{provider}", "stake"),
    }


def on_job_settled(session: Session, event: ChainEvent) -> None:
    """Move pay and fee to the batch; the refund leaves the contract."""
    args = event.args
    _divide(session, event, _JOB, [(_PAY, args["paid"]), (_FEE, args["fee"]), ("escrow", args["refund"])])


def on_settlement_reverted(session: Session, event: ChainEvent) -> None:
    """Return a vetoed batch's amounts to the job, or to the payer if the job was refunded."""
    args = event.args
    target = "escrow" if args["refunded"] else _JOB
    _divide(session, event, target, [(_PAY, -args["net"]), (_FEE, -args["fee"])])


def on_unit_withheld(session: Session, event: ChainEvent) -> None:
    _divide(session, event, _WITHHELD, [(_PAY, -event.args["net"]), (_FEE, -event.args["fee"])])


def on_unit_restored(session: Session, event: ChainEvent) -> None:
    """Return a unit's pay to its batch, or pay it out if the provider has claimed the rest."""
    target = "escrow" if event.args["paidOut"] else _PAY
    _divide(session, event, _WITHHELD, [(target, event.args["net"]), (_FEE, event.args["fee"])])


def on_dispute_ended(session: Session, event: ChainEvent) -> None:
    """Close the dispute's account: a rest is burned, a deficit came from a penalty."""
    rest = balance(session, _DISPUTE.format_map(event.args))
    _divide(session, event, _DISPUTE, [("disputes", rest)])


def on_rewards_posted(session: Session, event: ChainEvent) -> None:
    """Record an epoch's rewards as pending; the epoch before can no longer be vetoed."""
    settled = balance(session, _PENDING)
    promised = sum(event.args[f"{part}Total"] for part in ("base", "bandwidth", "verifier"))
    _divide(session, event, "rewards", [(_PENDING, promised - settled), (_POSTED, settled)])


def on_rewards_vetoed(session: Session, event: ChainEvent) -> None:
    _divide(session, event, _PENDING, [("rewards", balance(session, _PENDING))])


def _moves(source: str, target: str, amount: str | int = "amount") -> Handler:
    """Return a handler that moves an amount in wei, or the one in this argument of the event."""

    def handle(session: Session, event: ChainEvent) -> None:
        _divide(session, event, source, [(target, event.args[amount] if isinstance(amount, str) else amount)])

    return handle


def _divide(session: Session, event: ChainEvent, source: str, parts: Sequence[tuple[str, int]]) -> None:
    """Post one journal from ``source`` to each target; negative amounts flow back.

    Accounts may name arguments of the event in braces.
    """
    moved = [(account.format_map(event.args), amount) for account, amount in parts if amount]
    if not moved:
        return  # the token allows transfers of 0
    post(
        session,
        kind=event.name,
        key=f"{event.tx_hash}:{event.log_index}",
        lines=[(source.format_map(event.args), -sum(amount for _, amount in moved)), *moved],
        block=event.block_number,
    )
