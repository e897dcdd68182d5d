"""A fake on purpose: geth's transaction pool rules, which anvil lacks.

Rules and wordings are those of ``core/txpool``. A replacement must raise fee cap and tip by the price bump (10 %).
A repeated transaction is already known; a mined nonce is too low.
"""

from dataclasses import dataclass

from eth_account import Account
from eth_account.typed_transactions import TypedTransaction
from hexbytes import HexBytes

from kit.chain.faulty_rpc import Answer, FaultyRpc, Forward, Request, error_of

PRICE_BUMP_PERCENT = 10


@dataclass(frozen=True)
class Offer:
    """Transaction in the pool at one nonce; fees in wei per gas."""

    raw: str
    fee_cap: int
    tip: int


class GethPool:
    """The pool of one node, for transactions of type 2."""

    def __init__(self, proxy: FaultyRpc) -> None:
        self.held: dict[tuple[str, int], Offer] = {}
        self.refused: list[str] = []
        proxy.rule("eth_sendRawTransaction", self._send)

    def _send(self, request: Request, forward: Forward) -> Answer:
        raw = str(request["params"][0])
        sender = Account.recover_transaction(raw)
        fields = TypedTransaction.from_bytes(HexBytes(raw)).as_dict()
        offer = Offer(raw, int(fields["maxFeePerGas"]), int(fields["maxPriorityFeePerGas"]))
        nonce = int(fields["nonce"])
        counted = forward(
            {"jsonrpc": "2.0", "id": 0, "method": "eth_getTransactionCount", "params": [sender, "latest"]}
        )
        mined = int(counted["result"], 16)
        if nonce < mined:
            return self._refuse(request, f"nonce too low: next nonce {mined}, tx nonce {nonce}")
        old = self.held.get((sender, nonce))
        if old is not None:
            if old.raw == raw:
                return self._refuse(request, "already known")
            if not (_outbids(offer.fee_cap, old.fee_cap) and _outbids(offer.tip, old.tip)):
                return self._refuse(request, "replacement transaction underpriced")
        self.held[sender, nonce] = offer
        return forward(request)

    def _refuse(self, request: Request, message: str) -> Answer:
        self.refused.append(message)
        return error_of(request, message)


def _outbids(new: int, old: int) -> bool:
    return new > old and new * 100 >= old * (100 + PRICE_BUMP_PERCENT)
