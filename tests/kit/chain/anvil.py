"""A chain of one's own: anvil as a process on a free port."""

import re
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from kit.engines.watchdog import watch
from kit.waiting import delay
from market.chain.contracts.deploy import BLOCK_HISTORY
from zoo_compute.devnet.engines import find_anvil

CHAIN_ID = 31337
MNEMONIC = "test test test test test test test test test test test junk"


class AnvilProcess:
    """Anvil that mines each transaction at once; a block is final under two epochs."""

    def __init__(
        self, *, block_time: float | None = None, epoch_blocks: int = 1, deadline_seconds: float = 120.0
    ) -> None:
        self._log = tempfile.NamedTemporaryFile("w+", prefix="anvil-", suffix=".log")  # noqa: SIM115
        command = [str(find_anvil()), "--host", "127.0.0.1", "--port", "0", "--slots-in-an-epoch", str(epoch_blocks)]
        # States of old blocks, gigabytes in a long test, go with the process, and not to the user's home.
        self._states = tempfile.TemporaryDirectory(prefix="anvil-states-", ignore_cleanup_errors=True)
        command += ["--cache-path", self._states.name]
        command += ["--mnemonic", MNEMONIC, *(("--block-time", str(block_time)) if block_time else ())]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT)
        watch(self._process.pid)
        try:
            self.url = f"http://127.0.0.1:{self._wait_for_port(deadline_seconds)}"
        except BaseException:
            self.stop()
            raise
        self._http = httpx.Client(timeout=120.0)
        self._automines = block_time is None

    def _wait_for_port(self, deadline_seconds: float) -> int:
        deadline = time.monotonic() + deadline_seconds
        while time.monotonic() < deadline:
            output = Path(self._log.name).read_text()
            listening = re.search(r"Listening on 127\.0\.0\.1:(\d+)", output)
            if listening:
                return int(listening[1])
            if self._process.poll() is not None:
                raise RuntimeError(f"anvil ended: {output}")
            delay(0.02)
        raise TimeoutError(f"anvil did not listen within {deadline_seconds} s")

    def rpc(self, method: str, *parameters: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(parameters)}
        answer = self._http.post(self.url, json=body).json()
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def mine(self, blocks: int = 1) -> None:
        for _ in range(blocks):
            self.rpc("evm_mine")

    def forget_block_hash(self, number: int) -> None:
        """Remove a hash from the block history, as 8,191 further blocks would (EIP-2935)."""
        self.rpc("anvil_setStorageAt", BLOCK_HISTORY, hex(number % 8_191), "0x" + "00" * 32)

    def automine(self, on: bool) -> None:
        self.rpc("evm_setAutomine", on)
        self._automines = on

    def send(self, transaction: dict[str, str]) -> str:
        """Send a transaction; return its hash."""
        tx_hash = str(self.rpc("eth_sendTransaction", transaction))
        deadline = time.monotonic() + 120
        while self._automines and self.rpc("eth_getTransactionReceipt", tx_hash) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{tx_hash} was not mined")
            delay(0.002)
        return tx_hash

    def reorg(self, depth: int) -> None:
        """Replace the last blocks by as many empty ones without their transactions."""
        self.rpc("anvil_reorg", depth, [])

    def snapshot(self) -> str:
        return str(self.rpc("evm_snapshot"))

    def revert(self, mark: str) -> None:
        """Restore the snapshot and set the clock to the present."""
        self.rpc("anvil_dropAllTransactions")
        self.automine(True)
        if not self.rpc("evm_revert", mark):
            raise RuntimeError("anvil did not revert")
        self.rpc("evm_setTime", int(time.time()))  # the revert also sets the clock to the mark's
        # The next block's base fee stays that of the branch that was left, which the new head does not announce.
        head = self.rpc("eth_getBlockByNumber", "latest", False)
        self.rpc("anvil_setNextBlockBaseFeePerGas", head["baseFeePerGas"])

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        self._log.close()
        self._states.cleanup()

    def __enter__(self) -> "AnvilProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()
        self.stop()
