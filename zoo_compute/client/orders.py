"""Signing of orders: documents from the user's request, not the market's answer."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from training_gym.data.dataset import DatasetManifest
from training_gym.data.epochs import settings_with_rounds
from training_gym.evaluate.extent import settings_with_samples
from training_gym.model.base import completed_settings
from training_gym.model.folder import ModelManifest
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import unit_weight_us
from training_gym.spec.errors import GymError
from training_gym.spec.setting_fields import cid
from zoo_compute.base.errors import ConfigError, Mismatch
from zoo_compute.base.models import Network, Quote
from zoo_compute.chain.wallet import Wallet
from zoo_protocol import messages
from zoo_protocol.messages import Domain, JobOrder


def model_settings(given: Mapping[str, Any], fetch: Callable[[str], bytes]) -> dict[str, Any]:
    """Return a job's ``model_config``, completed by its base model as the market completes it.

    Args:
        fetch: returns a manifest's bytes, compared with their CID.

    Raises:
        ConfigError: the base model cannot be trained, or a setting contradicts it.
    """
    if given.get("base") is None:
        return dict(given)
    try:
        base = cid(given["base"], "model_config.base", "a base model's manifest")
        return completed_settings(given, ModelManifest.from_bytes(fetch(base)))
    except GymError as error:
        remedy = "Correct model_config, or push the model again and give the CID of its manifest."
        raise ConfigError("base-model-unusable", str(error), remedy=remedy) from error


def with_rounds(request: dict[str, Any], fetch: Callable[[str], bytes]) -> dict[str, Any]:
    """Return the body of a quote's request with ``rounds`` in place of ``epochs``.

    The market resolves them in the same way.

    Args:
        fetch: returns a manifest's bytes, compared with their CID.

    Raises:
        Mismatch: the market quoted a job whose epochs this version refuses.
    """
    try:
        settings = settings_with_rounds(_sections(request), request["nodes"], partial(_manifest, fetch))
    except GymError as error:
        raise _refused_here(error) from error
    return {**request, "training_config": settings}


def with_validation_samples(request: dict[str, Any], fetch: Callable[[str], bytes]) -> dict[str, Any]:
    """Return the body of a quote's request, with rounds, with the samples that a unit evaluates.

    Raises as :func:`with_rounds`.
    """
    try:
        settings = settings_with_samples(_sections(request), request["nodes"], partial(_manifest, fetch))
    except GymError as error:
        raise _refused_here(error) from error
    return {**request, "data_config": settings}


def whole_seconds(instant: str) -> int:
    """Return an ISO instant as whole seconds since 1970, as orders state it."""
    return int(datetime.fromisoformat(instant).timestamp())


def _manifest(fetch: Callable[[str], bytes], spec: TrainingSpec) -> DatasetManifest:
    return DatasetManifest.from_bytes(fetch(spec.dataset))


def sign(request: dict[str, Any], quote: Quote, network: Network, wallet: Wallet) -> tuple[str, dict[str, Any]]:
    """Return the job's id and the body of ``POST /v1/jobs``.

    Only the nonce comes from the quote. The size of a unit is recomputed and compared.

    Args:
        request: body of the quote's request, with rounds and validation samples.

    Raises:
        Mismatch: the quote differs from the request.
    """
    try:
        spec = TrainingSpec.from_dict(_sections(request), request["nodes"])
    except GymError as error:
        raise _refused_here(error) from error
    tier = network.tiers[request["tier"]]
    speed = tier.reference_flops_per_gpu[spec.training.precision]
    order = JobOrder(
        payer=wallet.address,
        specHash=spec.spec_hash(),
        tier=tier.id,
        units=spec.training.rounds * request["nodes"],
        unitWeight=unit_weight_us(spec, tier.gpus, speed),
        segments=spec.segments,
        samplingBps=request.get("sampling_bps", network.sampling_floor_bps),
        budget=int(request["budget_max"]),
        maxPrice=int(request["max_price"]),
        waitUntil=whole_seconds(request["wait_until"]),
        nonce=quote.nonce,
    )
    quoted = (quote.spec_hash, quote.units, quote.unit_weight_us, quote.sampling_bps)
    asked = (order.specHash, order.units, order.unitWeight, order.samplingBps)
    if quoted != asked:
        raise Mismatch(
            "quote-mismatch",
            f"the quote has spec, units, weight and sampling rate {quoted}; expected {asked}",
            remedy="Update zoo-compute. If it is up to date, do not use this market.",
        )
    escrow = network.contracts["JobEscrow"]
    signed = {
        **request,
        "nonce": str(order.nonce),
        "order_signature": wallet.sign_typed_data(messages.typed_data(Domain(network.chain_id, escrow), order)),
    }
    return messages.struct_hash(order), signed


def _sections(request: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("model_config", "adapter_config", "data_config", "training_config")
    return {key: request[key] for key in keys if key in request}


def _refused_here(error: GymError) -> Mismatch:
    return Mismatch("quote-mismatch", f"the market quoted a job that this version refuses: {error}")
