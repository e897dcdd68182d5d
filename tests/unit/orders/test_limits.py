"""Limits of jobs, and the formats and bounds that must hold at them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from market.domain.network import DEVNET, MAINNET, ZEN, NetworkParameters
from market.orders.errors import InvalidOrder, InvalidSpec
from market.orders.schemas import MAX_NODES, JobSpec
from market.orders.terms import MAX_UNITS, parse_terms
from market.settings import Settings
from market.training.uploads.router import MAX_FILE_BYTES
from market.verification.windows.service import MAX_LEAVES
from training_gym.aggregate.aggregation import MAX_PAYLOADS
from training_gym.exchange.deadlines import MAX_STALENESS
from training_gym.spec.config import MAX_PARAMETERS, MAX_REPLICAS
from training_gym.spec.costs import unit_memory_bytes
from training_gym.units.checkpoint import MAX_SLOTS
from zoo_compute.client.client import MAX_DOWNLOAD_BYTES
from zoo_compute.node.disk.workspace import MAX_INPUT_BYTES
from zoo_protocol.content.unixfs import CHUNK_BYTES, MAX_BLOCKS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "sequence_length": 64}


def request(model: dict[str, Any], nodes: int = 1, rounds: int = 1, **training: Any) -> JobSpec:
    return JobSpec.model_validate(
        {
            "model_config": model,
            "data_config": {"dataset": "b" * 59},
            "training_config": {"rounds": rounds, "inner_steps": 64, "segment_steps": 1} | training,
            "tier": "gold",
            "nodes": nodes,
            "budget_max": str(2**90),
            "max_price": str(ZEN // 100),
            "wait_until": NOW + timedelta(hours=1),
        }
    )


def with_memory(job: JobSpec, gigabytes: int) -> JobSpec:
    return job.model_copy(update={"requirements": job.requirements.model_copy(update={"min_gpu_memory_gb": gigabytes})})


def test_gang_may_have_most_nodes_and_not_more() -> None:
    found = parse_terms(request(SMALL, MAX_NODES), MAINNET, NOW)
    assert (found.nodes, found.units, found.spec.replicas) == (256, 256, 256)
    with pytest.raises(ValidationError, match="less than or equal to 256"):
        request(SMALL, MAX_NODES + 1)


def test_units_bound_rounds_of_largest_gang() -> None:
    assert parse_terms(request(SMALL, MAX_NODES, 39), MAINNET, NOW).units <= MAX_UNITS
    with pytest.raises(InvalidOrder, match="10240 units; expected at most 10000"):
        parse_terms(request(SMALL, MAX_NODES, 40), MAINNET, NOW)


def test_market_bounds_trained_parameters() -> None:
    trained = parse_terms(request(SMALL), MAINNET, NOW).spec.num_parameters()
    assert parse_terms(request(SMALL), MAINNET, NOW, max_parameters=trained).nodes == 1
    with pytest.raises(InvalidSpec, match=f"trains {trained} parameters; this market allows {trained - 1}") as refused:
        parse_terms(request(SMALL), MAINNET, NOW, max_parameters=trained - 1)
    assert refused.value.extra == {"reason": "out_of_range"}


def test_memory_of_tier_bounds_larger_models_first() -> None:
    billions = {"hidden_size": 4_096, "num_hidden_layers": 32, "num_attention_heads": 32, "sequence_length": 4_096}
    with pytest.raises(InvalidOrder, match=r"One unit needs \d+\.\d+ GiB; each GPU of tier gold has 73.57 GiB"):
        parse_terms(request(billions | {"intermediate_size": 11_008}, micro_batch_size=1), MAINNET, NOW)


@pytest.mark.parametrize(("network", "room"), [(MAINNET, 10**9), (DEVNET, 0)])
def test_memory_of_gpus_has_room_for_libraries(network: NetworkParameters, room: int) -> None:
    wide = request(SMALL | {"hidden_size": 12_288, "num_attention_heads": 96}, batch_size=1)
    needed = unit_memory_bytes(parse_terms(with_memory(wide, 200), network, NOW).spec)
    least = -(-(needed + room) // 10**9)
    assert parse_terms(with_memory(wide, least), network, NOW).nodes == 1
    with pytest.raises(InvalidOrder, match="One unit needs") as refused:
        parse_terms(with_memory(wide, least - 1), network, NOW)
    assert f"min_gpu_memory_gb to {least} or more" in str(refused.value.remedy)


def test_own_positions_of_model_bound_sequences() -> None:
    longer = SMALL | {"sequence_length": 32_768}
    assert parse_terms(request(longer, batch_size=1), MAINNET, NOW).spec.model.sequence_length == 32_768
    with pytest.raises(InvalidSpec, match="beyond max_position_embeddings, 32767"):
        parse_terms(request(longer | {"max_position_embeddings": 32_767}, batch_size=1), MAINNET, NOW)


def test_formats_hold_largest_job() -> None:
    state_bytes = 12 * MAX_PARAMETERS  # error feedback and two moments in float32
    assert state_bytes < min(MAX_FILE_BYTES, MAX_DOWNLOAD_BYTES, MAX_INPUT_BYTES)
    assert MAX_FILE_BYTES <= MAX_BLOCKS * CHUNK_BYTES
    assert min(MAX_PAYLOADS, MAX_LEAVES) >= MAX_NODES * (1 + MAX_STALENESS)  # late payloads join later rounds
    assert max(MAX_NODES, MAX_UNITS // MAX_NODES) <= min(MAX_REPLICAS, MAX_SLOTS)
    assert Settings.model_fields["max_parameters"].default <= MAX_PARAMETERS
