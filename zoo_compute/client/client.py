"""The market from Python: put data there, have models trained, watch, check and fetch them.

    from zoo_compute import Client

    client = Client(api_url="https://market.example", private_key="0x…")
    job = client.train(config="training_config.yaml", max_budget=5000)
    job.wait()

All calls block. Every error is a :class:`zoo_compute.base.errors.ZooError` with a stable code.
"""

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any

from training_gym.data.dataset import DatasetManifest, describe_split
from zoo_compute.base.amounts import parse_zen
from zoo_compute.base.errors import ConfigError, Mismatch, Unreachable
from zoo_compute.base.models import Claim, JobState, Network, OmissionClaim, Provider, Quote, RewardProof, Rewards
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client import jobspec, orders, rewards
from zoo_compute.client.earnings import list_claims, take
from zoo_compute.client.http import Connection
from zoo_compute.client.job import Job
from zoo_compute.client.jobspec import JobSpec, LocalDataset
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_protocol.content.cid import ContentError
from zoo_protocol.content.unixfs import cid_of_file

API_VARIABLE = "ZOO_API_URL"
API_KEY_VARIABLE = "ZOO_API_KEY"
MAX_DOWNLOAD_BYTES = 1 << 36


class Client:
    """One account's view of one market. Safe for threads.

    Args:
        api_url: base URL of the market; default ``ZOO_API_URL``.
        wallet: signs in, and signs orders; default: that of the environment (``ZOO_PRIVATE_KEY`` or ``ZOO_KEYSTORE``).
        private_key: instead of a wallet.
        api_key: acts for the account without signing in; default ``ZOO_API_KEY``. Submitting needs a wallet as well,
            because the order is signed.

    Raises:
        ConfigError: if there is no usable address or key.
    """

    def __init__(
        self,
        api_url: str | None = None,
        *,
        wallet: Wallet | None = None,
        private_key: str | None = None,
        api_key: str | None = None,
    ) -> None:
        api_url = api_url or os.environ.get(API_VARIABLE)
        if api_url is None:
            raise ConfigError("api-url-missing", "no market is named", remedy=f"Give api_url, or set {API_VARIABLE}.")
        if private_key is not None:
            wallet = Wallet(private_key)
        self.wallet = wallet or Wallet.from_environment()
        self.connection = Connection(api_url, wallet=self.wallet, api_key=api_key or os.environ.get(API_KEY_VARIABLE))
        self._network: Network | None = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.connection.close()

    def network(self) -> Network:
        """The network's parameters and addresses; asked once."""
        if self._network is None:
            self._network = Network.model_validate(self.connection.get("/v1/network"))
        return self._network

    def providers(self) -> Iterator[Provider]:
        """All providers and verifiers, by address."""
        after: str | None = None
        while True:
            page = self.connection.get("/v1/providers", {"after": after} if after else None)
            yield from (Provider.model_validate(item) for item in page["items"])
            after = page["next_after"]
            if after is None:
                return

    def upload(self, content: bytes | Path) -> str:
        """Put content on storage and return its CID, which is computed here as well.

        Raises:
            Mismatch: the market stored something else.
            ConfigError: the file cannot be read.
        """
        content = _read(content)
        cid = cid_of_file(content)
        headers = {"Content-Type": "application/octet-stream"}
        stored = self.connection.call("POST", "/v1/blobs", repeatable=True, content=content, headers=headers)
        if stored["cid"] != cid:
            raise Mismatch("upload-mismatch", f"the market stored {stored['cid']}, but the content is {cid}")
        return cid

    def upload_dataset(self, train: bytes | Path, validation: bytes | Path) -> str:
        """Put a byte-token dataset of two splits on storage; returns the CID of its manifest."""
        splits = [describe_split(self.upload(content), content) for content in map(_read, (train, validation))]
        return self.upload(DatasetManifest(*splits).to_bytes())

    def quote(self, spec: JobSpec) -> Quote:
        """What a job would cost; uploads its files if it names some, and commits to nothing.

        Raises:
            ApiError: the market refuses such a job; ``field`` names what is wrong with it.
        """
        return self._quote(self._request(spec))

    def submit(self, spec: JobSpec) -> Job:
        """Sign a job and put it into the market; its budget goes into escrow.

        Raises:
            ApiError: the market refuses it; nothing was signed or written.
            Mismatch: what the market quoted or accepted is not what was asked for.
            ConfigError: there is no wallet to sign with.
        """
        request = self._request(spec)
        return Job(self, self._submit(request, self._quote(request)))

    def submit_proposed(self, job_id: str, what: str, changes: dict[str, Any]) -> str:
        """Sign and submit what the market proposes as ``clone`` or ``extend`` of a job; return the new job's id.

        The proposed terms must be those of the job, except for the requested changes. See :meth:`Job.clone`.
        """
        state = Job(self, job_id).state()
        amounts = {name: str(changes[name]) for name in ("budget_max", "max_price") if name in changes}
        body = changes | amounts
        proposed = self.connection.post(f"/v1/jobs/{job_id}/{what}", body, repeatable=True)
        request = proposed["request"]
        expected = {
            "budget_max": str(state.budget_wei),
            "max_price": str(state.max_price_wei),
            "nodes": state.nodes,
            "tier": state.tier,
            "sampling_bps": state.sampling_bps,
            "model_config": state.spec["model_config"],
        }
        for name, value in (expected | {name: body[name] for name in expected.keys() & body.keys()}).items():
            if request[name] != value:
                raise Mismatch("quote-mismatch", f"the market proposes {name} {request[name]!r}, not {value!r}")
        if request["data_config"]["dataset"] != state.spec["data_config"]["dataset"]:
            raise Mismatch("quote-mismatch", "the market proposes another dataset")
        return self._submit(request, Quote.model_validate(proposed["quote"]))

    def _submit(self, request: dict[str, Any], quote: Quote) -> str:
        if self.wallet is None:
            raise ConfigError(
                "wallet-missing", "an order must be signed", remedy="Set ZOO_PRIVATE_KEY or ZOO_KEYSTORE."
            )
        job_id, body = orders.sign(request, quote, self.network(), self.wallet)
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        accepted = self.connection.call("POST", "/v1/jobs", repeatable=True, json=body, headers=headers)
        state = JobState.model_validate(accepted)
        if state.id != job_id:
            raise Mismatch("job-id-mismatch", f"the market accepted job {state.id}, but {job_id} was signed")
        return state.id

    def train(self, config: str | Path, max_budget: str | int | Decimal | None = None) -> Job:
        """Submit the job in a YAML or JSON file (see :func:`zoo_compute.client.jobspec.load`).

        Args:
            max_budget: ZEN put in escrow at most, in place of the file's ``budget_max``; exact, so never a float.
        """
        overrides = {} if max_budget is None else {"budget_max": f"{parse_zen(max_budget, 'max_budget')} wei"}
        return self.submit(jobspec.load(Path(config), overrides))

    def job(self, job_id: str) -> Job:
        """A handle on one job; asks nothing yet. Raises ConfigError if the id is none."""
        if not re.fullmatch("0x[0-9a-fA-F]{64}", job_id):
            remedy = "Give 0x and 64 hex digits; `zoo-compute job list` shows your jobs."
            raise ConfigError("job-malformed", f"{job_id!r:.100} names no job", remedy=remedy)
        return Job(self, job_id.lower())

    def jobs(self) -> Iterator[JobState]:
        """The account's jobs, newest first."""
        after: str | None = None
        while True:
            page = self.connection.get("/v1/jobs", {"after": after} if after else None)
            yield from (JobState.model_validate(item) for item in page["jobs"])
            after = page["next"]
            if after is None:
                return

    def claims(self, *, claimed: bool = False) -> list[Claim]:
        """What the account earned as a provider: what it can take, or what it took already."""
        return list_claims(self.connection, claimed=claimed)

    def claim_earnings(self, to: str | None = None) -> tuple[list[Claim], str | None]:
        """Claim all that can be claimed now; the claims taken and the transaction's hash (None: nothing was due).

        Args:
            to: who receives it (default: the wallet's own address).

        Raises:
            ConfigError: there is no wallet to sign with.
            ZooError: the contract refuses the claim.
        """
        if self.wallet is None:
            raise ConfigError("wallet-missing", "a claim must be signed", remedy="Set ZOO_PRIVATE_KEY or ZOO_KEYSTORE.")
        return take(self.claims(), self.network(), self.wallet, to)

    def rewards(self) -> Rewards:
        """What the account earned for uptime, bandwidth and verification, and what of it can be claimed."""
        return rewards.list_rewards(self.connection)

    def claim_rewards(self, to: str | None = None) -> tuple[RewardProof | None, str | None]:
        """Claim the rewards that can be claimed now; what was taken and the transaction's hash (None: nothing was due).

        Args:
            to: who receives it (default: the wallet's own address).

        Raises:
            ConfigError: there is no wallet to sign with.
            Mismatch: the market's proof is none.
            ZooError: the contract refuses the claim.
        """
        if self.wallet is None:
            raise ConfigError("wallet-missing", "a claim must be signed", remedy="Set ZOO_PRIVATE_KEY or ZOO_KEYSTORE.")
        return rewards.take(self.rewards(), self.network(), self.wallet, to)

    def omission_claims(self) -> list[OmissionClaim]:
        """Your claims for commitments that the market acknowledged and left out, the newest first."""
        return [OmissionClaim.model_validate(item) for item in self.connection.get("/v1/omissions")]

    def fetch(self, cid: str, *, max_bytes: int) -> bytes:
        """A file from storage, every block checked against its CID.

        Raises:
            Mismatch: storage gave something else.
            Unreachable: storage does not have it, or does not answer.
        """
        with storage_errors(), GatewayClient(self.network().gateways) as gateway:
            return gateway.fetch(cid, max_bytes=max_bytes)

    def download(self, cid: str, path: Path, *, max_bytes: int = MAX_DOWNLOAD_BYTES) -> int:
        """Write a file from storage to ``path``, which appears only when complete; returns its size.

        Raises:
            Mismatch, Unreachable: as for :meth:`fetch`.
            ConfigError: nothing can be written there.
        """
        with storage_errors(), GatewayClient(self.network().gateways) as gateway:
            try:
                return gateway.download(cid, path, max_bytes=max_bytes)
            except OSError as error:
                raise ConfigError(
                    "file-unwritable",
                    f"{path}: {error.strerror}",
                    remedy="Give a file in a directory that is there and has room.",
                ) from error

    def _quote(self, request: dict[str, Any]) -> Quote:
        return Quote.model_validate(self.connection.post("/v1/quotes", request, repeatable=True))

    def _request(self, spec: JobSpec) -> dict[str, Any]:
        """The body of a quote: files uploaded, the price and the deadline filled in."""
        dataset, max_price = spec.dataset, spec.max_price
        if isinstance(dataset, LocalDataset):
            dataset = self.upload_dataset(dataset.train, dataset.validation)
        if max_price is None:
            tier = self.network().tiers.get(spec.tier)
            max_price = tier.reserve_price_wei if tier else 1  # an unknown tier is the market's to refuse, by name
        return {
            "model_config": dict(spec.model),
            "data_config": {"dataset": dataset},
            "training_config": dict(spec.training),
            "tier": spec.tier,
            "nodes": spec.nodes,
            "budget_max": str(spec.budget_max),
            "max_price": str(max_price),
            "wait_until": jobspec.deadline(spec.wait).isoformat(),
            "checkpoint": dict(spec.checkpoint),
            "requirements": dict(spec.requirements),
            **({} if spec.sampling_bps is None else {"sampling_bps": spec.sampling_bps}),
        }


@contextmanager
def storage_errors() -> Iterator[None]:
    """Storage's errors as this package's."""
    try:
        yield
    except (BlockNotFound, GatewayUnavailable) as error:
        raise Unreachable(
            "content-unavailable", str(error), remedy="Try again later, or at another IPFS gateway."
        ) from error
    except ContentError as error:
        raise Mismatch("content-mismatch", str(error)) from error


def _read(content: bytes | Path) -> bytes:
    if isinstance(content, bytes):
        return content
    try:
        return content.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with U+0000
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            "file-unreadable",
            f"{content}: {reason}",
            remedy="Name a text file that is there; a job file's paths are relative to it.",
        ) from error
