"""Handlers that mirror final chain events as journals. The chart of accounts is in ``market.ledger``."""

from collections.abc import Callable

from sqlalchemy.orm import Session

from market.chain.contracts import ChainEvent, Deployment
from market.ledger.service import post

Handler = Callable[[Session, ChainEvent], None]

_NOBODY = "0x" + "00" * 20  # a transfer from it creates tokens, one to it destroys them


def handlers(deployment: Deployment) -> dict[tuple[str, str], Handler]:
    """The mirror's handlers by (contract, event), for the indexer."""
    holders = {
        deployment.address("JobEscrow"): "escrow",
        deployment.address("ProviderStaking"): "stake",
        deployment.address("Treasury"): "treasury",
    }

    def on_transfer(session: Session, event: ChainEvent) -> None:
        """ZEN came into a contract, left one, was created or destroyed. Transfers among others are not ours."""
        payer, payee = event.args["from"], event.args["to"]
        source = "issuance" if payer == _NOBODY else holders.get(payer, f"wallet:{payer}")
        target = "burned" if payee == _NOBODY else holders.get(payee, f"wallet:{payee}")
        if source != target and not (source.startswith("wallet:") and target.startswith("wallet:")):
            _move(session, event, source, target, event.args["value"])

    return {
        ("ZenToken", "Transfer"): on_transfer,
        ("JobEscrow", "JobOpened"): on_job_opened,
        ("JobEscrow", "ProviderPaid"): on_provider_paid,
        ("JobEscrow", "JobSettled"): on_job_settled,
        ("JobEscrow", "JobRefunded"): on_job_refunded,
        ("ProviderStaking", "Staked"): on_staked,
        ("ProviderStaking", "Withdrawn"): on_stake_left,
        ("ProviderStaking", "Slashed"): on_stake_left,
    }


def on_job_opened(session: Session, event: ChainEvent) -> None:
    """What came into the escrow belongs to the job."""
    _move(session, event, "escrow", f"escrow:{event.args['jobId']}", event.args["budget"])


def on_provider_paid(session: Session, event: ChainEvent) -> None:
    """A provider's part of the job's escrow left."""
    _move(session, event, f"escrow:{event.args['jobId']}", "escrow", event.args["amount"])


def on_job_settled(session: Session, event: ChainEvent) -> None:
    """The fee and the rest of the job's escrow left; its providers' parts have events of their own."""
    left = event.args["fee"] + event.args["refund"]
    _move(session, event, f"escrow:{event.args['jobId']}", "escrow", left)


def on_job_refunded(session: Session, event: ChainEvent) -> None:
    """All of the job's escrow went back to its payer."""
    _move(session, event, f"escrow:{event.args['jobId']}", "escrow", event.args["amount"])


def on_staked(session: Session, event: ChainEvent) -> None:
    """What came into staking belongs to the staker."""
    _move(session, event, "stake", f"stake:{event.args['provider']}", event.args["amount"])


def on_stake_left(session: Session, event: ChainEvent) -> None:
    """A staker withdrew, or was slashed; the transfer says where it went."""
    _move(session, event, f"stake:{event.args['provider']}", "stake", event.args["amount"])


def _move(session: Session, event: ChainEvent, source: str, target: str, amount: int) -> None:
    if amount == 0:
        return  # the token allows transfers of nothing
    post(
        session,
        kind=event.name,
        key=f"{event.tx_hash}:{event.log_index}",
        lines=[(source, -amount), (target, amount)],
        block=event.block_number,
    )
