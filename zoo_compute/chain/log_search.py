"""Searching the chain's logs in ranges that its node accepts: most refuse long ones, each by a limit of its own."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

FIRST_BLOCKS = 1_000
"""Of the first range; each further one is twice as long, until one is refused."""


def newest_first(event: Any, filters: Mapping[str, Any], first: int, last: int) -> Iterator[list[Any]]:
    """The events in the blocks ``first`` to ``last`` by ranges, the newest range first, each in the chain's order.

    A range that the node refuses is asked for in halves, and none is longer from then on. Who has found enough stops.

    Args:
        event: of a contract of web3.
        filters: values of its indexed arguments.

    Raises:
        requests.RequestException, web3.exceptions.Web3RPCError: the node answers nothing, or refuses a single block.
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
    """The events in the blocks ``first`` to ``last``, in the chain's order. Raises as :func:`newest_first`."""
    ranges = list(newest_first(event, filters, first, last))
    return [found for one in reversed(ranges) for found in one]


def newest(event: Any, filters: Mapping[str, Any], first: int, last: int) -> Any | None:
    """The last such event in the blocks ``first`` to ``last``, if there is one. Raises as :func:`newest_first`."""
    return next((found[-1] for found in newest_first(event, filters, first, last) if found), None)


def _is_too_many_requests(error: Exception) -> bool:
    """Then shorter ranges, which are more requests, would be no remedy."""
    response = getattr(error, "response", None)
    return response is not None and response.status_code == HTTPStatus.TOO_MANY_REQUESTS
