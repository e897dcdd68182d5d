"""Python client of the market: upload data, submit and verify jobs, download models.

    from zoo_compute import Client

    client = Client(api_url="https://market.example", private_key="0x…")
    job = client.train(config="training_config.yaml", max_budget=5000)
    job.wait()

All calls block. Every error is a :class:`zoo_compute.base.errors.ZooError`.
"""

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from zoo_compute.base.amounts import parse_zen
from zoo_compute.base.errors import ApiError, ConfigError, Mismatch, Unreachable
from zoo_compute.base.models import (
    Balance,
    Claim,
    Deposit,
    JobState,
    Network,
    OmissionClaim,
    OpenWork,
    Provider,
    Quote,
    RewardProof,
    Rewards,
)
from zoo_compute.chain.transactions import Chain
from zoo_compute.chain.wallet import Wallet
from zoo_compute.client import balance, datasets, earnings, jobspec, orders, proposals, uploads
from zoo_compute.client.http import Connection
from zoo_compute.client.job import Approve, Job
from zoo_compute.client.jobspec import JobSpec
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_protocol.content.cid import ContentError

API_VARIABLE = "ZOO_API_URL"
API_KEY_VARIABLE = "ZOO_API_KEY"
MAX_DOWNLOAD_BYTES = 1 << 37
_OTHER_ORGANISATION = (
    "Ask one of its admins to make you a member. Or give another organisation (`zoo-compute org list`); "
    "0 is your own account."
)
_JOB_ID = re.compile("0x[0-9a-fA-F]{64}")


class Client:
    """Client of one market for one account. Safe for threads.

    Args:
        api_url: base URL of the market; default ``ZOO_API_URL``.
        wallet: signs in and signs orders; default: from ``ZOO_PRIVATE_KEY`` or ``ZOO_KEYSTORE``.
        private_key: instead of a wallet.
        api_key: replaces the sign-in; default ``ZOO_API_KEY``. ``submit`` needs a wallet too, to sign the order.

    Raises:
        ConfigError: no usable address or key.
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
            raise ConfigError("api-url-missing", "api_url is missing", remedy=f"Pass api_url, or set {API_VARIABLE}.")
        if private_key is not None:
            wallet = Wallet(private_key)
        self.wallet = wallet or Wallet.from_environment()
        self.connection = Connection(api_url, wallet=self.wallet, api_key=api_key or os.environ.get(API_KEY_VARIABLE))
        self._network: Network | None = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.connection.close()

    def network(self) -> Network:
        """Return the network's parameters and addresses, cached."""
        if self._network is None:
            self._network = Network.model_validate(self.connection.get("/v1/network"))
        return self._network

    def providers(self) -> Iterator[Provider]:
        """Yield all providers and verifiers, by address."""
        yield from map(Provider.model_validate, self.connection.pages("/v1/providers", "items", "next_after"))

    def upload(self, content: bytes | Path) -> str:
        """Store content and return its CID, which is recomputed here.

        Raises:
            Mismatch: the market stored other content.
            ConfigError: the file cannot be read.
        """
        limit = self.network().max_blob_bytes
        if isinstance(content, bytes):
            return uploads.send_bytes(self.connection, content, limit)
        return uploads.send_file(self.connection, content, limit)

    def quote(self, spec: JobSpec) -> Quote:
        """Return a job's quote. Builds and uploads a dataset from sources; orders nothing.

        Raises:
            ApiError: the market refuses the job; ``field`` is the invalid field.
        """
        return self._quote(self._request(spec))

    def submit(self, spec: JobSpec, approve: Approve | None = None, *, organisation: int | None = None) -> Job:
        """Sign and submit a job; its budget goes from the balance into escrow.

        What the balance lacks is deposited first, after consent.

        Args:
            approve: called with the quote before anything is signed; an exception ends the submission.
            organisation: id of one that the account belongs to: its members see the job, and its caps apply. 0 or
                None: the account's own.

        Raises:
            ApiError: the market refuses it; a deposit stays in the balance.
            Mismatch: the quote or the accepted job differs from the request.
            ConfigError: there is no wallet.
        """
        request = self._request(spec)
        quote = self._quote(request)  # first: the market explains what is wrong with the dataset or the epochs
        request = orders.with_validation_samples(orders.with_rounds(request, self._manifest), self._manifest)
        return Job(self, self._submit(request, quote, approve, organisation))

    def submit_proposed(self, job_id: str, what: str, changes: dict[str, Any], approve: Approve | None = None) -> str:
        """Sign and submit a ``clone`` or ``extend`` of a job; return the id.

        Args:
            changes: as of :meth:`zoo_compute.client.job.Job.clone` or ``extend``.

        Raises:
            Mismatch: the proposed terms differ from the job's in more than ``changes``.
        """
        job = Job(self, job_id)
        state = job.state()
        texts = {name: str(changes[name]) for name in ("budget_max", "max_price", "wait_until") if name in changes}
        body: dict[str, Any] = changes | texts
        organisation = body.pop("organisation", state.organisation_id)  # its caps apply to the new job, too
        proposed = self.connection.post(f"/v1/jobs/{job_id}/{what}", body, repeatable=True)
        request = proposed["request"]
        continued = job.checkpoints() if what == "extend" else None
        proposals.check(request, state, body, continued, self._manifest)
        return self._submit(request, Quote.model_validate(proposed["quote"]), approve, organisation)

    def _submit(self, request: dict[str, Any], quote: Quote, approve: Approve | None, organisation: int | None) -> str:
        if organisation:  # a quote takes none
            request["organisation"] = organisation
        if approve is not None:
            approve(quote, int(request["budget_max"]))
        wallet = self.signing_wallet("submitting")
        job_id, body = orders.sign(request, quote, self.network(), wallet)
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        with balance.covering(self.connection, self.network(), wallet, int(request["budget_max"])):
            try:
                accepted = self.connection.call("POST", "/v1/jobs", repeatable=True, json=body, headers=headers)
            except ApiError as error:
                if error.field == "organisation":
                    error.remedy = _OTHER_ORGANISATION
                raise
        state = JobState.model_validate(accepted)
        if state.id != job_id:
            raise Mismatch("job-id-mismatch", f"the market accepted job {state.id}, but {job_id} was signed")
        return state.id

    def train(self, config: str | Path, max_budget: str | int | Decimal | None = None) -> Job:
        """Submit the job in a YAML or JSON file (see :func:`zoo_compute.client.jobspec.load`).

        Args:
            max_budget: ZEN in escrow instead of the file's ``budget_max``; not a float.
        """
        overrides = {} if max_budget is None else {"budget_max": f"{parse_zen(max_budget, 'max_budget')} wei"}
        return self.submit(jobspec.load(Path(config), overrides))

    def job(self, job_id: str) -> Job:
        """Return a handle on one job without a request. Raises ConfigError for a malformed id."""
        if not _JOB_ID.fullmatch(str(job_id)):
            remedy = "Give 0x and 64 hex digits. `zoo-compute job list` shows your jobs."
            raise ConfigError("job-malformed", f"{job_id!r:.100} is not a job id", remedy=remedy)
        return Job(self, job_id.lower())

    def find_job(self, text: str | None) -> Job:
        """Return a job by id, or an own one by unique start of id or by name; None: the newest.

        Raises:
            ConfigError: no job or several jobs match.
        """
        if text is not None and _JOB_ID.fullmatch(text):
            return self.job(text)
        found = islice(self.jobs(), 1) if text is None else self.jobs()
        matching = [
            state.id for state in found if text is None or state.name == text or state.id.startswith(text.lower())
        ]
        if text is not None and len(matching) > 1:
            remedy = f"Give more of one of these: {', '.join(matching[:5])}"
            raise ConfigError("job-ambiguous", f"{text!r:.100} matches {len(matching)} of your jobs", remedy=remedy)
        if not matching:
            remedy = (
                "`zoo-compute job list` shows your jobs. Give one of another payer by its whole id, which "
                "`zoo-compute job list --organisation ID` shows."
            )
            raise ConfigError("job-unknown", f"none of your jobs matches {text or 'newest'!r:.100}", remedy=remedy)
        return self.job(matching[0])

    def jobs(self, *, organisation: int | None = None) -> Iterator[JobState]:
        """Yield the account's jobs, newest first.

        Args:
            organisation: id of one that the account belongs to, whose jobs are meant instead; 0: as None.

        Raises:
            ApiError: the account does not belong to it.
        """
        chosen = {"organisation": str(organisation)} if organisation else None
        yield from map(JobState.model_validate, self.connection.pages("/v1/jobs", "jobs", "next", chosen))

    def signing_wallet(self, purpose: str) -> Wallet:
        """Return the wallet. Raises ConfigError if there is none; ``purpose`` starts its message."""
        if self.wallet is None:
            raise ConfigError(
                "wallet-missing", f"{purpose} needs a wallet", remedy="Set ZOO_PRIVATE_KEY or ZOO_KEYSTORE."
            )
        return self.wallet

    def chain(self, purpose: str = "this command") -> Chain:
        """Return the network's contracts with the wallet; raises as :meth:`signing_wallet`."""
        network = self.network()
        return Chain(network.rpc_url, network.contracts, self.signing_wallet(purpose))

    def balance(self) -> Balance:
        """Return the account's balance in the escrow and its deposits."""
        return balance.read(self.connection)

    def deposit(self, amount_wei: int) -> Deposit:
        """Add to the balance by a permit; return once the deposit is on chain.

        Raises:
            ConfigError: there is no wallet.
            ZooError: the market or the contract refuses it.
        """
        return balance.deposit(self.connection, self.network(), self.signing_wallet("a deposit"), amount_wei)

    def withdraw(self, amount_wei: int | None = None) -> tuple[int, str]:
        """Withdraw from the balance to the wallet; return wei and transaction's hash.

        Args:
            amount_wei: default: all that no pending order takes.

        Raises:
            ConfigError, ZooError: as for :meth:`deposit`.
        """
        return balance.withdraw(self.connection, self.network(), self.signing_wallet("a withdrawal"), amount_wei)

    def claims(self, *, claimed: bool = False) -> list[Claim]:
        """Return the account's unclaimed (or ``claimed``) pay as a provider."""
        return earnings.list_claims(self.connection, claimed=claimed)

    def claim_earnings(self, to: str | None = None) -> tuple[list[Claim], str | None]:
        """Claim all claimable pay; return claims and transaction's hash (None: no claim).

        Args:
            to: recipient; None: the wallet's address.

        Raises:
            ConfigError: there is no wallet.
            ZooError: the contract refuses the claim.
        """
        return earnings.claim_pay(self.claims(), self.network(), self.signing_wallet("claiming"), to)

    def rewards(self) -> Rewards:
        """Return the account's rewards for uptime, bandwidth and verification."""
        return earnings.list_rewards(self.connection)

    def claim_rewards(self, to: str | None = None) -> tuple[RewardProof | None, str | None]:
        """Claim all claimable rewards; return proof and transaction's hash (None: no claim).

        Raises:
            ConfigError, ZooError: as for :meth:`claim_earnings`.
            Mismatch: the market's proof is wrong.
        """
        return earnings.claim_rewards(self.rewards(), self.network(), self.signing_wallet("claiming"), to)

    def open_work(self) -> OpenWork:
        """Return the work of the account's node that is not over."""
        return OpenWork.model_validate(self.connection.get("/v1/work"))

    def omission_claims(self) -> list[OmissionClaim]:
        """Return the account's omission claims, newest first."""
        return [OmissionClaim.model_validate(item) for item in self.connection.get("/v1/omissions")]

    def fetch(self, cid: str, *, max_bytes: int) -> bytes:
        """Return a file from storage, every block checked against its CID.

        Raises:
            Mismatch: the content differs from the CID.
            Unreachable: storage does not have it, or does not answer.
        """
        with storage_errors(), GatewayClient(self.network().gateways) as gateway:
            return gateway.fetch(cid, max_bytes=max_bytes)

    def download(self, cid: str, path: Path, *, max_bytes: int = MAX_DOWNLOAD_BYTES) -> int:
        """Write a file to ``path``, which appears only when complete; return its bytes.

        Raises:
            Mismatch, Unreachable: as for :meth:`fetch`.
            ConfigError: the path is not writable.
        """
        with storage_errors(), GatewayClient(self.network().gateways) as gateway:
            try:
                return gateway.download(cid, path, max_bytes=max_bytes)
            except OSError as error:
                remedy = "Give a file in an existing directory with enough space."
                raise ConfigError("file-unwritable", f"{path}: {error.strerror}", remedy=remedy) from error

    def _manifest(self, cid: str) -> bytes:
        return self.fetch(cid, max_bytes=MAX_MANIFEST_BYTES)

    def _quote(self, request: dict[str, Any]) -> Quote:
        return Quote.model_validate(self.connection.post("/v1/quotes", request, repeatable=True))

    def _request(self, spec: JobSpec) -> dict[str, Any]:
        """Return the body of a quote request: uploads data, completes model, price and wait."""
        dataset, max_price, model = spec.dataset, spec.max_price, dict(spec.model)
        if isinstance(dataset, datasets.Request):
            pushed = datasets.push(self, dataset)
            dataset = pushed.cid
            if model.get("base") is None:
                model.setdefault("vocab_size", pushed.manifest.vocab_size)
        if max_price is None:
            tier = self.network().tiers.get(spec.tier)
            max_price = tier.reserve_price_wei if tier else 1  # the market refuses an unknown tier
        return {
            "model_config": orders.model_settings(model, self._manifest),
            **({} if spec.adapter is None else {"adapter_config": dict(spec.adapter)}),
            "data_config": {"dataset": dataset, **spec.data_settings()},
            "training_config": dict(spec.training),
            "tier": spec.tier,
            "nodes": spec.nodes,
            "budget_max": str(spec.budget_max),
            "max_price": str(max_price),
            "wait_until": jobspec.deadline(spec.wait).isoformat(),
            "checkpoint": dict(spec.checkpoint),
            "requirements": dict(spec.requirements),
            **({} if spec.sampling_bps is None else {"sampling_bps": spec.sampling_bps}),
            **({} if spec.name is None else {"name": spec.name}),
        }


@contextmanager
def storage_errors() -> Iterator[None]:
    """Convert errors of storage into :class:`Unreachable` and :class:`Mismatch`."""
    try:
        yield
    except (BlockNotFound, GatewayUnavailable) as error:
        raise Unreachable(
            "content-unavailable", str(error), remedy="Try again later, or at another IPFS gateway."
        ) from error
    except ContentError as error:
        raise Mismatch("content-mismatch", str(error)) from error
