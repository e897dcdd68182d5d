"""Acts for a person's wallet: prepare, simulate, export, follow. The market signs none."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict

from sqlalchemy.orm import Session

from market.chain.service import finalised_cursor
from market.chain.views import ChainViews
from market.governance import repository
from market.governance.errors import ActRefused, PayoutNotFound
from market.governance.schemas import (
    ActProgress,
    ActView,
    ParameterView,
    PreparedView,
    SimulationView,
    TransactionView,
)
from market.governance.service import as_operation, operation_of
from market.platform.db.rows import from_row
from zoo_protocol.acts import calls, export
from zoo_protocol.acts.calls import Contracts, PreparedAct
from zoo_protocol.acts.parameters import ActError
from zoo_protocol.acts.simulation import simulate
from zoo_protocol.acts.table import ACTS
from zoo_protocol.acts.veto import veto_arguments


def acts() -> list[ActView]:
    """Return the table of acts."""
    return [
        from_row(
            ActView,
            act,
            parameters=[
                from_row(ParameterView, one, choices=[words for _, words in one.choices]) for one in act.parameters
            ],
        )
        for act in ACTS.values()
    ]


def prepare_act(
    chain: ChainViews, contracts: Contracts, sender: str, key: str, arguments: Mapping[str, object]
) -> PreparedView:
    """Return an act, or its proposal in the timelock, simulated from ``sender``.

    Raises:
        ActRefused: unknown act, or a missing, unknown or malformed argument.
        ChainError: the node does not answer.
    """
    try:
        prepared = calls.prepare(key, arguments, contracts, salt=secrets.token_bytes(32))
    except ActError as error:
        field = None if error.field is None else f"arguments.{error.field}"
        raise ActRefused(str(error), field=field) from error
    return _view(chain, contracts, sender, prepared)


def prepare_execution(
    session: Session, chain: ChainViews, contracts: Contracts, sender: str, operation_id: str
) -> PreparedView:
    """Return the execution of an operation. Raises OperationNotFound and ChainError."""
    operation = as_operation(operation_of(session, operation_id))
    return _view(chain, contracts, sender, calls.execute(operation, contracts))


def prepare_cancellation(
    session: Session, chain: ChainViews, contracts: Contracts, sender: str, operation_id: str
) -> PreparedView:
    """Return the cancellation of an operation. Raises OperationNotFound and ChainError."""
    operation = as_operation(operation_of(session, operation_id))
    return _view(chain, contracts, sender, calls.cancel(operation, contracts))


def prepare_batch_veto(
    session: Session, chain: ChainViews, contracts: Contracts, sender: str, number: int
) -> PreparedView:
    """Return the veto of a batch, with the contents that its transaction posted.

    Raises:
        PayoutNotFound: the chain has no final batch of this number, or its contents were not found.
        ChainError: the node does not answer.
    """
    row = repository.payout(session, "batch", number)
    if row is None:
        raise PayoutNotFound(f"no final batch has the number {number}", field="number")
    posted = chain.client.transaction_data(row.posted_tx)
    arguments = None if posted is None else veto_arguments(number, row.root, posted)
    if arguments is None:
        raise PayoutNotFound(f"transaction {row.posted_tx} has no settlement of batch {number}", field="number")
    return prepare_act(chain, contracts, sender, "escrow.veto", arguments)


def follow(session: Session, chain: ChainViews, tx_hash: str) -> ActProgress:
    """Return how far a sent transaction is. Raises ChainError."""
    receipt = chain.client.receipt(tx_hash)
    if receipt is None:
        return ActProgress(tx_hash=tx_hash, status="waiting", block_number=None)
    cursor = finalised_cursor(session)
    is_final = cursor is not None and receipt.block_number <= cursor[0]
    status = "reverted" if not receipt.succeeded else "final" if is_final else "mined"
    return ActProgress(tx_hash=tx_hash, status=status, block_number=receipt.block_number)  # type: ignore[arg-type]


def _view(chain: ChainViews, contracts: Contracts, sender: str, prepared: PreparedAct) -> PreparedView:
    simulation = simulate(prepared, sender, contracts, chain.client.refusal)
    return from_row(
        PreparedView,
        prepared,
        act=prepared.key,
        words=list(prepared.words),
        operation_id=None if prepared.operation is None else prepared.operation.id,
        transaction=TransactionView(**export.raw_transaction(prepared, contracts)),
        safe=export.safe_transaction(prepared, contracts, created_at_ms=time.time_ns() // 1_000_000),
        simulation=SimulationView(**{**asdict(simulation), "warnings": list(simulation.warnings)}),
    )
