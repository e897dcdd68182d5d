"""A FAKE on purpose: a proxy before a real node that loses requests and replies, or answers like a lagging node."""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import httpx


class FaultyRpc:
    """Forwards JSON-RPC to ``upstream``, except for the faults that a test asks for."""

    def __init__(self, upstream: str) -> None:
        self.calls: Counter[str] = Counter()
        self._lose_requests: Counter[str] = Counter()
        self._lose_replies: Counter[str] = Counter()
        self._answers: dict[str, Any] = {}
        self._http = httpx.Client(timeout=30.0)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(upstream))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def lose_request(self, method: str) -> None:
        """The next such request never reaches the node; the caller sees a closed connection."""
        self._lose_requests[method] += 1

    def lose_reply(self, method: str) -> None:
        """The next such request takes effect; its caller sees a closed connection."""
        self._lose_replies[method] += 1

    def answer(self, method: str, result: Any) -> None:
        """Answer all such requests with this from now on."""
        self._answers[method] = result

    def heal(self) -> None:
        """Forward everything again."""
        self._lose_requests.clear()
        self._lose_replies.clear()
        self._answers.clear()

    def _handler(self, upstream: str) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                request = json.loads(body)
                method = request["method"]
                proxy.calls[method] += 1
                if proxy._lose_requests[method] > 0:
                    proxy._lose_requests[method] -= 1
                    self.close_connection = True
                    return
                if method in proxy._answers:
                    reply = json.dumps(
                        {"jsonrpc": "2.0", "id": request["id"], "result": proxy._answers[method]}
                    ).encode()
                else:
                    headers = {"content-type": "application/json"}
                    reply = proxy._http.post(upstream, content=body, headers=headers).content
                if proxy._lose_replies[method] > 0:
                    proxy._lose_replies[method] -= 1
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
