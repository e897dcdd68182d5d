"""Acts for a person's wallet: prepare, simulate, export, follow. The market signs none.

All functions ask the chain. None takes a database session, so that no connection waits for the chain.
"""

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict

from market.chain.rpc.client import Transaction
from market.chain.views import ChainViews
from market.governance.errors import ActRefused, PayoutNotFound, SentActNotFound
from market.governance.models import PostedPayout, TimelockOperation
from market.governance.schemas import (
    ActProgress,
    ActView,
    ParameterView,
    PreparedView,
    SimulationView,
    TransactionView,
)
from market.governance.service import as_operation
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
    chain: ChainViews, contracts: Contracts, sender: str, operation: TimelockOperation
) -> PreparedView:
    """Return the execution of an operation. Raises ChainError."""
    return _view(chain, contracts, sender, calls.execute(as_operation(operation), contracts))


def prepare_cancellation(
    chain: ChainViews, contracts: Contracts, sender: str, operation: TimelockOperation
) -> PreparedView:
    """Return the cancellation of an operation. Raises ChainError."""
    return _view(chain, contracts, sender, calls.cancel(as_operation(operation), contracts))


def prepare_batch_veto(chain: ChainViews, contracts: Contracts, sender: str, batch: PostedPayout) -> PreparedView:
    """Return the veto of a batch, with the contents that its transaction posted.

    Raises:
        PayoutNotFound: the contents were not found.
        ChainError: the node does not answer.
    """
    posted = chain.client.transaction(batch.posted_tx)
    arguments = None if posted is None else veto_arguments(batch.number, batch.root, posted.data)
    if arguments is None:
        detail = f"transaction {batch.posted_tx} has no settlement of batch {batch.number}"
        raise PayoutNotFound(detail, field="number")
    return prepare_act(chain, contracts, sender, "escrow.veto", arguments)


def sent_transaction(chain: ChainViews, tx_hash: str) -> Transaction:
    """Return a transaction that is reported as an act. Raises SentActNotFound and ChainError."""
    found = chain.client.transaction(tx_hash)
    if found is None:
        raise SentActNotFound(f"the node does not have {tx_hash}", field="tx_hash")
    return found


def follow(chain: ChainViews, final_block: int, tx_hash: str) -> ActProgress:
    """Return a transaction's state; blocks up to ``final_block`` are final. Raises ChainError."""
    receipt = chain.client.receipt(tx_hash)
    if receipt is None:
        return ActProgress(tx_hash=tx_hash, status="waiting", block_number=None)
    is_final = receipt.block_number <= final_block
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
