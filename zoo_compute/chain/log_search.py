"""Event searches in ranges that the RPC node accepts, and calls that opened disputes."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from zoo_protocol.hashing import to_hex

FIRST_BLOCKS = 1_000
"""Length of the first range; it doubles until a range is refused."""


def newest_first(event: Any, filters: Mapping[str, Any], first: int, last: int) -> Iterator[list[Any]]:
    """Yield events of ``first`` to ``last`` by range, newest first, each in chain order.

    A refused range is halved, and later ranges are not longer. A caller can stop early.

    Args:
        event: event of a web3 contract.
        filters: values of its indexed arguments.

    Raises:
        requests.RequestException, web3.exceptions.Web3RPCError: the node does not answer, or refuses a single block.
    """
    from requests.exceptions import HTTPError
    from web3.exceptions import Web3RPCError

    length, most = FIRST_BLOCKS, last - first + 1
    while last >= first:
        length = min(length, most, last - first + 1)
        try:
            found = event.get_logs(argument_filters=filters, from_block=last - length + 1, to_block=last)
        except (HTTPError, Web3RPCError) as error:
            if length == 1 or _is_too_many_requests(error):
                raise
            most = length = length // 2
            continue
        yield list(found)
        last -= length
        length *= 2


def all_events(event: Any, filters: Mapping[str, Any], first: int, last: int) -> list[Any]:
    """Return events of ``first`` to ``last`` in chain order; raises as :func:`newest_first`."""
    ranges = list(newest_first(event, filters, first, last))
    return [found for one in reversed(ranges) for found in one]


def newest(event: Any, filters: Mapping[str, Any], first: int, last: int) -> Any | None:
    """Return the last event of ``first`` to ``last``, if any; raises as :func:`newest_first`."""
    return next((found[-1] for found in newest_first(event, filters, first, last) if found), None)


def plain(struct: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an event or argument with bytes as 0x hex."""
    return {name: to_hex(value) if isinstance(value, bytes) else value for name, value in struct.items()}


def opening_calls(disputes: Any, call: bytes) -> list[Mapping[str, Any]]:
    """Return the arguments of each ``open`` of the contract in untrusted call data.

    One multicall is read, but none within it: crafted offsets would repeat nested calls without limit.
    """
    found = []
    for name, arguments in _decoded(disputes, call):
        inner = arguments["data"] if name == "multicall" else []
        found += [(name, arguments), *(one for data in inner for one in _decoded(disputes, data))]
    return [arguments for name, arguments in found if name == "open"]


def _decoded(contract: Any, call: bytes) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the function's name and its arguments; empty for a call of another contract."""
    try:
        function, arguments = contract.decode_function_input(call)
    except Exception:  # untrusted bytes: decoders fail in many ways
        return []
    return [(str(function.fn_name), arguments)]


def _is_too_many_requests(error: Exception) -> bool:
    response = getattr(error, "response", None)
    return response is not None and response.status_code == HTTPStatus.TOO_MANY_REQUESTS
