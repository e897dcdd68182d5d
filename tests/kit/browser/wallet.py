"""A wallet in a browser: an EIP-1193 provider that anvil backs, announced by EIP-6963."""

from typing import Any

from playwright.sync_api import Page

from kit.chain.anvil import AnvilProcess

_PROVIDER = """
(() => {
  const provider = {
    request: async ({ method, params = [] }) => {
      const answer = await window.zooTestWallet({ method, params });
      if (answer.error) throw Object.assign(new Error(answer.error), { code: 4001 });
      return answer.result;
    },
  };
  const detail = Object.freeze({ info: { uuid: "1", name: "Test wallet", icon: "", rdns: "test.wallet" }, provider });
  const announce = () => dispatchEvent(new CustomEvent("eip6963:announceProvider", { detail }));
  addEventListener("eip6963:requestProvider", announce);
})();
"""


class TestWallet:
    """Wallet of one of anvil's accounts. ``refuses``: the person declines each request.

    ``asked`` has the methods in order.
    """

    __test__ = False  # the class is a helper of tests

    def __init__(self, page: Page, anvil: AnvilProcess, address: str) -> None:
        self.address, self.refuses = address, False
        self.asked: list[str] = []
        self._anvil = anvil
        page.context.expose_function("zooTestWallet", self._answer)
        page.context.add_init_script(_PROVIDER)

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        method, params = request["method"], request["params"]
        self.asked.append(method)
        if self.refuses:
            return {"error": "The person declined."}
        if method in ("eth_requestAccounts", "eth_accounts"):
            return {"result": [self.address]}
        try:
            return {"result": self._anvil.rpc(method, *params)}
        except RuntimeError as error:
            return {"error": str(error)}
