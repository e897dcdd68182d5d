"""The account's balance in the escrow, from which its signed orders draw."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from zoo_compute.base.errors import Unreachable, ZooError
from zoo_compute.base.models import Balance, Deposit, Network
from zoo_compute.chain.transactions import Chain
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client.http import Connection
from zoo_protocol import messages

TOKEN_NAME = "ZEN"
_LOOK_SECONDS = 0.5
_MINING_SECONDS = 300.0
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # by wallet


def read(connection: Connection, deposit_wei: int | None = None) -> Balance:
    """Return the balance of the connection's account, with the permit of a deposit if asked for."""
    return Balance.model_validate(
        connection.get("/v1/balance", None if deposit_wei is None else {"deposit": str(deposit_wei)})
    )


@contextmanager
def covering(connection: Connection, network: Network, wallet: Wallet, budget_wei: int) -> Iterator[None]:
    """Deposit what the balance lacks for one more order, to be submitted in the block.

    The threads of a process take turns for each wallet: an order counts once the market has accepted it.
    """
    with _locks[wallet.address]:
        missing = budget_wei - read(connection).uncommitted_wei
        if missing > 0:
            _deposit(connection, network, wallet, missing)
        yield


def deposit(connection: Connection, network: Network, wallet: Wallet, amount_wei: int) -> Deposit:
    """Deposit by a permit that the market relays; return once it is on chain.

    Raises:
        ApiError: the market refuses it.
        ZooError: the contract refuses it.
        Unreachable: it is not mined in time.
    """
    with _locks[wallet.address]:
        return _deposit(connection, network, wallet, amount_wei)


def _deposit(connection: Connection, network: Network, wallet: Wallet, amount_wei: int) -> Deposit:
    terms = read(connection, amount_wei).permit_message
    nonce, deadline = int(terms["nonce"]), int(terms["deadline"])
    token, escrow = network.contracts["ZenToken"], network.contracts["JobEscrow"]
    permit = messages.permit_typed_data(
        network.chain_id, token, TOKEN_NAME, wallet.address, escrow, amount_wei, nonce, deadline
    )
    body = {
        "amount": str(amount_wei),
        "permit_nonce": str(nonce),
        "deadline": deadline,
        "signature": wallet.sign_typed_data(permit),
    }
    found = Deposit.model_validate(connection.post("/v1/deposits", body, repeatable=True))
    ends = time.monotonic() + _MINING_SECONDS
    while found.status not in ("mined", "final"):
        if found.status == "reverted":
            detail = f"the deposit of {amount_wei} wei failed: {found.reason}"
            raise ZooError("deposit-reverted", detail, remedy="Nothing moved. Check the wallet's ZEN, and repeat it.")
        if time.monotonic() > ends:
            remedy = "`zoo-compute balance show` lists it. It is mined later, or fails without effect."
            raise Unreachable("deposit-pending", "the deposit is not on chain yet", remedy=remedy)
        time.sleep(_LOOK_SECONDS)
        found = next(one for one in read(connection).deposits if one.id == found.id)
    return found


def withdraw(connection: Connection, network: Network, wallet: Wallet, amount_wei: int | None) -> tuple[int, str]:
    """Withdraw to the wallet; return wei and transaction's hash.

    Args:
        amount_wei: default: all that no order takes.

    Raises:
        ZooError: nothing is available, or the contract refuses.
    """
    with _locks[wallet.address]:
        amount = read(connection).available_wei if amount_wei is None else amount_wei
        if amount <= 0:
            raise ZooError("nothing-available", "the balance has nothing to withdraw")
        return amount, Chain(network.rpc_url, network.contracts, wallet).withdraw_balance(amount)
