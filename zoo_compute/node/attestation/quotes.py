"""Quotes of the trusted environment that this node runs in, and how its attestation is kept up.

Two ways to a quote are known, both files: Linux' TSM reports (TDX and others) and Gramine's attestation device (SGX).
"""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import dcap_qvl

from zoo_compute.base.errors import ZooError
from zoo_compute.client.http import understood
from zoo_compute.node.attestation.gpu_statements import GpuSource
from zoo_compute.node.market.calls import Market
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


Collateral = dict[str, str]


class QuoteSource:
    """Takes quotes of this environment.

    Args:
        tsm, gramine: where their files are.
    """

    def __init__(self, tsm: Path = TSM_REPORTS, gramine: Path = GRAMINE_DEVICE) -> None:
        self._tsm = tsm
        self._gramine = gramine

    def quote(self, report_data: bytes) -> bytes:
        """A quote over 64 bytes.

        Raises:
            ZooError: ``no-environment``: this is none, or it refused.
        """
        try:
            if self._gramine.is_dir():
                (self._gramine / "user_report_data").write_bytes(report_data)
                return (self._gramine / "quote").read_bytes()
            return self._tsm_quote(report_data)
        except OSError as error:
            raise ZooError(
                "no-environment",
                f"no quote could be taken: {error}",
                remedy=f"Run the node inside a TDX guest ({self._tsm}) or under Gramine ({self._gramine}), as a user "
                "that may use these files; or leave --attest out.",
            ) from error

    def _tsm_quote(self, report_data: bytes) -> bytes:
        # One that a killed process left behind stays there, and in a container the next process has the same number.
        entry = self._tsm / f"zoo-{uuid.uuid4().hex}"
        entry.mkdir()
        try:
            (entry / "inblob").write_bytes(report_data)
            return (entry / "outblob").read_bytes()
        finally:
            entry.rmdir()  # configfs removes the attributes with it


def collateral_from(pccs_url: str | None) -> Callable[[bytes], Collateral]:
    """What fetches the collateral of a quote from a PCCS: one of the operator's, or None for Intel's."""
    url = pccs_url or dcap_qvl.INTEL_PCS_URL

    def fetch(quote: bytes) -> Collateral:
        try:
            found = asyncio.run(_collateral(url, quote))
        except (ValueError, RuntimeError, OSError) as error:
            raise ZooError(
                "collateral-unavailable",
                f"{url} gave no collateral: {str(error) or 'no answer in time'}",
                remedy="Check --pccs-url and that this node reaches it.",
            ) from error
        return {name: value for name, value in json.loads(found.to_json()).items() if value is not None}

    return fetch


async def _collateral(url: str, quote: bytes) -> dcap_qvl.QuoteCollateralV3:
    async with asyncio.timeout(_COLLATERAL_SECONDS):
        return await dcap_qvl.get_collateral(url, quote)  # a future of a running loop, not a coroutine


class AttestationRenewal:
    """Keeps this node's attestation up. Never fatal: without one its work is sampled at the ordinary rate.

    Args:
        address: this node's wallet.
        source: takes quotes.
        collateral: fetches what checks one.
        gpus: asks NVIDIA about the GPUs; None if there are none.
    """

    def __init__(
        self,
        market: Market,
        address: str,
        source: QuoteSource,
        collateral: Callable[[bytes], Collateral],
        gpus: GpuSource | None = None,
    ) -> None:
        self._market = market
        self._address = address
        self._source = source
        self._collateral = collateral
        self._gpus = gpus
        self._next_at = 0.0

    def keep(self) -> None:
        """Attest anew, if that is due."""
        now = time.time()
        if now < self._next_at:
            return
        self._next_at = now + _RETRY_SECONDS
        try:
            with understood("an attestation"):
                found = self._attested(now)
        except ZooError as error:
            log.warning("not attested: %s %s", error, error.remedy or "")
            return
        if found is not None:
            covered = len(found["attested_gpus"])
            log.info("%s quote accepted, measurement %s, %d GPUs", found["tee"], found["measurement"], covered)

    def _attested(self, now: float) -> dict[str, Any] | None:
        """What the market read in a fresh quote; None while the last one holds."""
        until = self._market.attested_until(self._address)
        if until is not None and (left := datetime.fromisoformat(until).timestamp() - now) > RENEW_SECONDS:
            self._next_at = now + left - RENEW_SECONDS
            return None
        challenge = self._market.start_attestation()
        gpus = self._gpus.statement(from_hex(challenge["gpu_nonce"])) if self._gpus else None
        quote = self._source.quote(with_gpus(from_hex(challenge["report_data"], _REPORT_DATA_BYTES), gpus))
        said = gpus.as_document() if gpus else None
        return self._market.answer_attestation(challenge["id"], quote.hex(), self._collateral(quote), said)
