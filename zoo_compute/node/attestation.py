"""Attestation of this machine: TEE quotes, NVIDIA's statements on its GPUs, and the renewal.

Two file interfaces of quotes are supported: Linux TSM reports (TDX and others) and Gramine's attestation device (SGX).
"""

import asyncio
import json
import logging
import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import dcap_qvl
import httpx

from zoo_compute.base.errors import ZooError
from zoo_compute.client.http import answer_errors
from zoo_compute.node.market.calls import Market
from zoo_protocol.attestation.gpu_attestation import ISSUER, GpuStatement, QuoteRefused
from zoo_protocol.attestation.tee_quotes import with_gpus
from zoo_protocol.hashing import from_hex

log = logging.getLogger(__name__)

TSM_REPORTS = Path("/sys/kernel/config/tsm/report")
"""Linux 6.7 and later, Documentation/ABI/testing/configfs-tsm."""

GRAMINE_DEVICE = Path("/dev/attestation")
RENEW_SECONDS = 3 * 86_400
_RETRY_SECONDS = 600.0
_COLLATERAL_SECONDS = 15.0
_REPORT_DATA_BYTES = 64
_GPU_SECONDS = 120.0

Collateral = dict[str, str]


class QuoteSource:
    """Source of TEE quotes; ``tsm`` and ``gramine`` are the paths of the two interfaces."""

    def __init__(self, tsm: Path = TSM_REPORTS, gramine: Path = GRAMINE_DEVICE) -> None:
        self._tsm = tsm
        self._gramine = gramine

    def quote(self, report_data: bytes) -> bytes:
        """Return a quote over 64 bytes. Raises ZooError: ``no-environment``."""
        try:
            if self._gramine.is_dir():
                (self._gramine / "user_report_data").write_bytes(report_data)
                return (self._gramine / "quote").read_bytes()
            return self._tsm_quote(report_data)
        except OSError as error:
            raise ZooError(
                "no-environment",
                f"no TEE quote is available: {error}",
                remedy=f"Run the node in a TDX guest ({self._tsm}) or under Gramine ({self._gramine}), as a user with "
                "access to these files; or remove --attest.",
            ) from error

    def _tsm_quote(self, report_data: bytes) -> bytes:
        # A unique name: a killed process leaves its entry, and containers reuse process numbers.
        entry = self._tsm / f"zoo-{uuid.uuid4().hex}"
        entry.mkdir()
        try:
            (entry / "inblob").write_bytes(report_data)
            return (entry / "outblob").read_bytes()
        finally:
            entry.rmdir()  # configfs removes the attributes with it


def collateral_from(pccs_url: str | None) -> Callable[[bytes], Collateral]:
    """Return a function that fetches the collateral of a TEE quote from a PCCS; None is Intel's."""
    url = pccs_url or dcap_qvl.INTEL_PCS_URL

    def fetch(quote: bytes) -> Collateral:
        try:
            found = asyncio.run(_collateral(url, quote))
        except (ValueError, RuntimeError, OSError) as error:
            raise ZooError(
                "collateral-unavailable",
                f"{url} gave no collateral: {str(error) or 'no answer in time'}",
                remedy="Check --pccs-url and the connection to it.",
            ) from error
        return {name: value for name, value in json.loads(found.to_json()).items() if value is not None}

    return fetch


async def _collateral(url: str, quote: bytes) -> dcap_qvl.QuoteCollateralV3:
    async with asyncio.timeout(_COLLATERAL_SECONDS):
        return await dcap_qvl.get_collateral(url, quote)  # a future of a running loop, not a coroutine


class GpuSource:
    """Source of GPU attestations.

    Args:
        tool: ``nvattest``, the CLI of NVIDIA's attestation SDK. It reads NV_ATTESTATION_SERVICE_KEY if one is needed.
        service: base URL of the service.
    """

    def __init__(self, tool: str = "nvattest", service: str = ISSUER) -> None:
        self._tool = tool
        self._service = service

    def statement(self, nonce: bytes) -> GpuStatement:
        """Return NVIDIA's signed statement on all GPUs of this machine, over a nonce of 32 bytes.

        Raises:
            ZooError: ``no-gpu-statement``.
        """
        try:
            answer = self._answer(nonce)
            keys = httpx.get(f"{self._service}/.well-known/jwks.json", timeout=_GPU_SECONDS)
            return GpuStatement.of_answer(answer, keys.raise_for_status().json())
        except (OSError, subprocess.SubprocessError, httpx.HTTPError, ValueError, KeyError, QuoteRefused) as error:
            raise ZooError(
                "no-gpu-statement",
                f"NVIDIA's attestation service gave no statement: {error}",
                remedy=f"Enable confidential mode on the GPUs, install {self._tool}, allow access to {self._service} "
                "and set NV_ATTESTATION_SERVICE_KEY if you have one; or remove --attest.",
            ) from error

    def _answer(self, nonce: bytes) -> Any:
        asked = ["--device", "gpu", "--verifier", "remote", "--nonce", nonce.hex(), "--nras-url", self._service]
        command = [self._tool, "--format", "json", "--log-level", "error", "attest", *asked]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GPU_SECONDS, check=False)
        if done.returncode:
            raise ValueError(done.stderr.strip()[-500:] or f"{self._tool} ended with {done.returncode}")
        return json.loads(done.stdout)["detached_eat"]


@dataclass
class AttestationRenewal:
    """Periodic renewal of the attestation; failures only keep the ordinary sampling rate."""

    market: Market
    address: str
    source: QuoteSource
    collateral: Callable[[bytes], Collateral]
    gpus: GpuSource | None = None
    _next_at: float = 0.0

    def keep(self) -> None:
        """Attest again if due."""
        now = time.time()
        if now < self._next_at:
            return
        self._next_at = now + _RETRY_SECONDS
        try:
            with answer_errors("an attestation"):
                found = self._attested(now)
        except ZooError as error:
            log.warning("attestation_failed error=%s remedy=%s", error, error.remedy or "")
            return
        if found is not None:
            covered = len(found["attested_gpus"])
            log.info("attested tee=%s measurement=%s gpus=%d", found["tee"], found["measurement"], covered)

    def _attested(self, now: float) -> dict[str, Any] | None:
        """Return the market's reading of a fresh quote; None while the last one is valid."""
        until = self.market.attested_until(self.address)
        if until is not None and (left := datetime.fromisoformat(until).timestamp() - now) > RENEW_SECONDS:
            self._next_at = now + left - RENEW_SECONDS
            return None
        challenge = self.market.start_attestation()
        gpus = self.gpus.statement(from_hex(challenge["gpu_nonce"])) if self.gpus else None
        quote = self.source.quote(with_gpus(from_hex(challenge["report_data"], _REPORT_DATA_BYTES), gpus))
        said = gpus.as_document() if gpus else None
        return self.market.answer_attestation(challenge["id"], quote.hex(), self.collateral(quote), said)
