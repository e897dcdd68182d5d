"""A fake on purpose: a proxy before a node that loses or replaces answers."""

import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import httpx

Request = dict[str, Any]
Answer = dict[str, Any]


class ConnectionLost(Exception):
    pass


Forward = Callable[[Request], Answer]
Rule = Callable[[Request, Forward], Answer]
"""Answers a request, or forwards it with the function that it is given; may raise :class:`ConnectionLost`."""


class FaultyRpc:
    """Forwards JSON-RPC to ``upstream``, except for the faults that a test asks for."""

    def __init__(self, upstream: str) -> None:
        self.calls: Counter[str] = Counter()
        self.posts = 0
        self.largest_batch: int | None = None
        self._rules: dict[str, Rule] = {}
        self._down = False
        self._http = httpx.Client(timeout=120.0)
        self._upstream = upstream
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def rule(self, method: str, rule: Rule) -> None:
        self._rules[method] = rule

    def lose_request(self, method: str) -> None:
        """Close the connection of the next such request before the node receives it."""

        def lose(request: Request, forward: Forward) -> Answer:
            del self._rules[method]
            raise ConnectionLost

        self._rules[method] = lose

    def lose_reply(self, method: str) -> None:
        """Close the connection of the next such request after it takes effect."""

        def lose(request: Request, forward: Forward) -> Answer:
            del self._rules[method]
            forward(request)
            raise ConnectionLost

        self._rules[method] = lose

    def answer(self, method: str, result: Any) -> None:
        """Answer all such requests with this from now on."""
        self._rules[method] = lambda request, _: result_of(request, result)

    def refuse(self, method: str, message: str, code: int = -32000) -> None:
        self._rules[method] = lambda request, _: error_of(request, message, code)

    def lag_at(self, height: int) -> None:
        """Know no block above ``height``."""

        def blocks(request: Request, forward: Forward) -> Answer:
            which = request["params"][0]
            if which == "latest" or (which.startswith("0x") and int(which, 16) > height):
                which = hex(height) if which == "latest" else hex(2**40)
            return forward({**request, "params": [which, *request["params"][1:]]})

        self._rules["eth_getBlockByNumber"] = blocks
        self.answer("eth_blockNumber", hex(height))

    def go_down(self) -> None:
        self._down = True

    def heal(self) -> None:
        self._rules.clear()
        self._down = False
        self.largest_batch = None

    def _answer(self, body: Any) -> Any:
        if self._down:
            raise ConnectionLost
        self.posts += 1
        if isinstance(body, dict):
            return self._one(body)
        if self.largest_batch is not None and len(body) > self.largest_batch:
            return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "batch too large"}}
        return [self._one(request) for request in body]

    def _one(self, request: Request) -> Answer:
        self.calls[request["method"]] += 1
        rule = self._rules.get(request["method"])
        return self._forward(request) if rule is None else rule(request, self._forward)

    def _forward(self, request: Request) -> Answer:
        answer: Answer = self._http.post(self._upstream, json=request).json()
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                try:
                    reply = json.dumps(proxy._answer(body)).encode()
                except ConnectionLost:
                    self.close_connection = True
                    return
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def __enter__(self) -> "FaultyRpc":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._http.close()


def result_of(request: Request, result: Any) -> Answer:
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


def error_of(request: Request, message: str, code: int = -32000) -> Answer:
    return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}}
