"""GPU attestations from NVIDIA's attestation service, by NVIDIA's ``nvattest`` tool."""

import json
import subprocess
from typing import Any

import httpx

from zoo_compute.base.errors import ZooError
from zoo_protocol.attestation.gpu_attestation import ISSUER, GpuStatement, QuoteRefused

_SECONDS = 120.0


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
            answer, keys = self._answer(nonce), httpx.get(f"{self._service}/.well-known/jwks.json", timeout=_SECONDS)
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
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode:
            raise ValueError(done.stderr.strip()[-500:] or f"{self._tool} ended with {done.returncode}")
        return json.loads(done.stdout)["detached_eat"]
