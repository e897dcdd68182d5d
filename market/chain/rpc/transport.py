"""JSON-RPC to the nodes of a chain: one at a time, the next one if it fails or lags.

A write is sent once, to the current node; the sender handles a lost answer. Any node with the newest block seen may
answer reads.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar
from urllib.parse import urlsplit

import structlog
from requests import HTTPError, Timeout
from web3 import HTTPProvider
from web3.types import RPCEndpoint, RPCResponse

from market.chain.errors import ChainError, Lagging, RpcTimeout, RpcUnavailable, UnknownBlock, WrongChain, node_error
from market.platform.breaker import Breaker
from zoo_protocol.reverts import decode_revert

_log = structlog.get_logger(__name__)

Request = tuple[str, Sequence[Any]]
"""(method, parameters)"""

_T = TypeVar("_T")


class Endpoint:
    """Endpoint of a node. Errors contain only its host, because URLs often contain an API key."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        parts = urlsplit(url)
        self.name = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
        self.chain_checked = False
        self._provider = HTTPProvider(
            url, request_kwargs={"timeout": timeout_seconds}, exception_retry_configuration=None
        )

    def ask(self, method: str, *parameters: Any) -> Any:
        """Return the result of one request.

        Raises:
            RpcTimeout: no answer in time.
            RpcUnavailable: no usable answer.
            ChainError: typed error of the node.
        """
        return self._result(
            method, self._post(method, lambda: self._provider.make_request(RPCEndpoint(method), parameters))
        )

    def ask_many(self, requests: Sequence[Request]) -> list[Any]:
        """Return the results of a batch in order. Any error fails the batch, as in :meth:`ask`."""
        if len(requests) == 1:
            return [self.ask(requests[0][0], *requests[0][1])]
        if not requests:
            return []
        what = f"{len(requests)} x {requests[0][0]}"
        batch = [(RPCEndpoint(method), parameters) for method, parameters in requests]
        answers = self._post(what, lambda: self._provider.make_batch_request(batch))
        if not isinstance(answers, list):  # the node refused the batch
            return [self._result(what, answers)]
        if len(answers) != len(requests):
            raise RpcUnavailable(f"{what} at {self.name}: {len(answers)} answers")
        return [self._result(what, answer) for answer in answers]

    def height(self) -> int:
        return int(self.ask("eth_blockNumber"), 16)

    def _post(self, what: str, post: Callable[[], _T]) -> _T:
        try:
            return post()
        except Timeout:
            raise RpcTimeout(f"{what} at {self.name}: no answer in time") from None
        except HTTPError as error:
            raise RpcUnavailable(f"{what} at {self.name}: HTTP status {error.response.status_code}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:  # no connection, or a body other than JSON-RPC
            raise RpcUnavailable(f"{what} at {self.name}: {type(error).__name__}") from None

    def _result(self, what: str, response: RPCResponse) -> Any:
        failure = response.get("error")
        if isinstance(failure, dict):
            raise node_error(dict(failure), decode_revert)
        if failure is not None or "result" not in response:
            raise RpcUnavailable(f"{what} at {self.name}: malformed answer")
        return response["result"]


class Nodes:
    """Nodes of one chain, in order of preference. Thread-safe.

    With ``fails_fast`` reads are refused for some seconds after a time-out.

    Raises:
        ValueError: there is no URL, or one is malformed.
    """

    def __init__(self, urls: Sequence[str], chain_id: int, timeout_seconds: float, *, fails_fast: bool = False) -> None:
        if not urls or not all(urlsplit(url).hostname for url in urls):
            raise ValueError("the RPC URL must be one URL or several, separated by commas")
        self._chain_id = chain_id
        self._endpoints = [Endpoint(url, timeout_seconds) for url in urls]
        self._used = self._endpoints[0]
        self._newest = 0  # highest block seen
        self._breaker = Breaker("chain", (RpcTimeout,), RpcUnavailable) if fails_fast else None

    def ask(self, method: str, *parameters: Any) -> Any:
        """Return the answer to a read, from the current node or the next one that can answer.

        Raises:
            RpcUnavailable: no node with the newest block answers.
            ChainError: error of the current node.
        """
        return self._read(lambda endpoint: endpoint.ask(method, *parameters))

    def ask_many(self, requests: Sequence[Request]) -> list[Any]:
        """Return the answers to several reads from one node; otherwise as :meth:`ask`."""
        return self._read(lambda endpoint: endpoint.ask_many(requests))

    def send(self, method: str, *parameters: Any) -> Any:
        """Return the answer to a write: one attempt at the current node."""
        self._check_chain(self._used)
        return self._used.ask(method, *parameters)

    def head(self) -> Any:
        """Return the newest block as JSON, never one behind the newest seen unless all nodes are.

        Raises:
            Lagging: the nodes that answer are behind, and some node does not answer.
        """
        found = self.ask("eth_getBlockByNumber", "latest", False)
        if found is not None and int(found["number"], 16) < self._newest:
            self._switch_from_lagging_endpoint()
            found = self.ask("eth_getBlockByNumber", "latest", False)
        if found is None:
            raise RpcUnavailable("the node has no latest block")
        self._newest = max(self._newest, int(found["number"], 16))
        return found

    def demote_endpoint(self) -> None:
        """Switch to the next node, because the current one contradicted itself."""
        self._use(next(iter(self._others()), self._used))

    def _switch_from_lagging_endpoint(self) -> None:
        """Switch to a node with the newest block seen."""
        # If every node answers and none has that block, the chain itself has become shorter.
        heights = {endpoint: self._admitted_height(endpoint) for endpoint in (self._used, *self._others())}
        best = max(heights, key=lambda endpoint: heights[endpoint] or 0)
        height = heights[best] or 0
        if height < self._newest:
            if None in heights.values():
                raise Lagging(f"{best.name} is at block {height}, behind {self._newest}, and another node is silent")
            self._newest = height
        self._use(best)

    def _admitted_height(self, endpoint: Endpoint) -> int | None:
        try:
            self._check_chain(endpoint)
            return endpoint.height()
        except ChainError:
            return None

    def _read(self, ask: Callable[[Endpoint], _T]) -> _T:
        with nullcontext() if self._breaker is None else self._breaker.attempt():
            return self._read_from_any(ask)

    def _read_from_any(self, ask: Callable[[Endpoint], _T]) -> _T:
        failure: ChainError | None = None
        for endpoint in (self._used, *self._others()):
            try:
                self._check_chain(endpoint)
                if failure is not None and (height := endpoint.height()) < self._newest:
                    raise Lagging(f"{endpoint.name} is at block {height}, {self._newest} was seen")
                answer = ask(endpoint)
            except (RpcUnavailable, UnknownBlock, WrongChain) as error:
                failure = failure or error
                continue
            self._use(endpoint)
            return answer
        assert failure is not None
        raise failure

    def _others(self) -> Iterator[Endpoint]:
        used = self._used
        return (endpoint for endpoint in self._endpoints if endpoint is not used)

    def _use(self, endpoint: Endpoint) -> None:
        if endpoint is not self._used:
            _log.warning("rpc_endpoint_changed", of=self._used.name, to=endpoint.name)
            self._used = endpoint

    def _check_chain(self, endpoint: Endpoint) -> None:
        if endpoint.chain_checked:
            return
        actual = int(endpoint.ask("eth_chainId"), 16)
        if actual != self._chain_id:
            _log.error("wrong_chain", node=endpoint.name, chain=actual, expected=self._chain_id)
            raise WrongChain(f"{endpoint.name} serves chain {actual}, expected chain {self._chain_id}")
        endpoint.chain_checked = True
