"""Arguments of a veto, found in the transaction that posted the batch."""

from collections.abc import Iterator, Mapping
from typing import Any

from zoo_protocol import abi
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.payments.settlement_batch import JobLine, batch_root

_ESCROW, _SETTLE = "JobEscrow", "settle"


def veto_arguments(number: int, root: str, posted: bytes) -> dict[str, object] | None:
    """Return the arguments of ``escrow.veto``; None if the data has no ``settle`` of this root.

    The batch's root binds the arguments, so the source of ``posted`` needs no trust.

    Args:
        posted: data of the posting transaction. A Safe or another contract may have made the call within it.
    """
    for call in _settle_calls(posted):
        lines = [_line(one) for one in call["lines"]]
        found = batch_root(from_hex(call["claims"]), from_hex(call["units"]), lines)
        if to_hex(found) == root:
            return {"batchId": str(number), "claims": call["claims"], "units": call["units"], "lines": call["lines"]}
    return None


def _settle_calls(data: bytes) -> Iterator[Mapping[str, Any]]:
    selector = abi.selector(abi.function(_ESCROW, _SETTLE))
    start = data.find(selector)
    while start >= 0:
        found = abi.decode_call(_ESCROW, data[start:])
        if found is not None:
            yield found[1]
        start = data.find(selector, start + 1)


def _line(one: Mapping[str, Any]) -> JobLine:
    names = ("jobId", "price", "units", "fromRound", "toRound", "last", "record")
    return JobLine(*(one[name] for name in names))
