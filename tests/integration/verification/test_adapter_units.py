"""Units of an adapter: states, replays, disputes and losses of trained tensors only."""

from dataclasses import replace
from pathlib import Path

import pytest
from kit.base_models import manifest_of, write_base
from kit.engines.ipfs_processes import StoreProcess
from kit.errors import raises_code
from kit.nodes.node_work_fixtures import MODEL, TEXT
from kit.verification.unit_check_fixtures import CHEAT, HONEST, JOB, ORDER, TRAINING, World, settle_attempts, shown
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from training_gym.compress.payload_format import decode, payload_size
from training_gym.data.dataset import DatasetManifest, describe_shard
from training_gym.model.base import completed_settings
from training_gym.model.layout import initial_parameters
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingSpec
from zoo_compute.audit.dispute_case import Case
from zoo_compute.chain.disputes import RevealedTrace
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.segment_verdict import DataDeadline, Finding, NoVerdict, ReplayContext, decide_segment
from zoo_compute.node.execution.executor import Executor
from zoo_protocol.messages import UnitCommitment

ADAPTER = {"r": 2, "target_modules": ["q_proj", "down_proj"]}


def adapter_spec(store: StoreProcess, folder: Path) -> TrainingSpec:
    """Store a base model and return the specification of an adapter on it."""
    write_base(folder, read_model(MODEL))
    manifest = manifest_of(folder, store.add)
    split = describe_shard(store.add(TEXT), TEXT)
    settings = {"base": store.add(manifest.to_bytes()), "sequence_length": MODEL["sequence_length"]}
    document = {
        "model_config": completed_settings(settings, manifest),
        "adapter_config": ADAPTER,
        "data_config": {"dataset": store.add(DatasetManifest((split,), (split,)).to_bytes())},
        "training_config": TRAINING,
    }
    return TrainingSpec.from_dict(document)


@pytest.fixture(name="built", scope="module")
def settled_adapter_job(store: StoreProcess, executor: Executor, tmp_path_factory: pytest.TempPathFactory) -> World:
    directory = tmp_path_factory.mktemp("adapter")
    return settle_attempts(adapter_spec(store, directory / "base"), store, executor, directory)


@pytest.fixture(name="world")
def outsiders_world(built: World, tmp_path: Path) -> World:
    return replace(built, directory=tmp_path)


@pytest.mark.parametrize("provider", [HONEST, CHEAT])
def test_adapter_files_have_only_trained_tensors(world: World, provider: str) -> None:
    result, spec = world.results[provider], world.spec
    trained = {tensor.name for tensor in spec.trained_tensors()}
    assert {name.split(".lora_")[1] for name in trained} == {"A.weight", "B.weight"}
    for path in map(Path, result["states"]):
        names = load_safetensors(path.read_bytes())
        assert {name.split(".", 1)[1] for name in names} == trained
    assert payload_size(spec) < payload_size(replace(spec, adapter=None)) / 4
    assert Path(result["payload"]).stat().st_size <= payload_size(spec)
    update = decode(spec, Path(result["payload"]).read_bytes())
    assert update.size == spec.num_parameters()


def test_adapter_cheat_is_found_by_replay(world: World) -> None:
    served = shown(world, CHEAT, 1, 2)
    honest, cheat = world.check(find_trace=lambda leaf: served).attempts
    assert (honest.agrees, honest.misjudged) == (True, False)
    assert (cheat.agrees, cheat.misjudged) == (False, False)
    difference = cheat.difference
    assert difference is not None
    assert (difference.first_step, difference.where) == (1, "state 1")
    assert difference.tensor is not None
    assert difference.tensor.split(".", 1)[1] in {tensor.name for tensor in world.spec.trained_tensors()}


def judged(world: World, provider: str, step: int, state_cid: str | None = None) -> Finding:
    """Return a referee's finding on a segment that starts from the state of ``state_cid``."""
    result = world.results[provider]
    order = replace(ORDER, specHash=world.spec_hash)
    commitment = UnitCommitment(JOB, 0, 1, provider, result["trace_root"], "0x" + "cc" * 32)
    record = world.record.units[0]
    files = record.start_checkpoint_cid, None, None, None
    environment = world.executor.environment_class
    case = Case(order, commitment, environment, world.record.spec_cid, *files, record.top_k, None)
    trace = RevealedTrace(environment, result["state_digests"])
    with GatewayClient([world.store.gateway_url], attempts=1) as gateway:
        workspace = Workspace(world.directory / "referee")
        context = ReplayContext(workspace, gateway, environment, lambda task: world.executor.run(task, 60))
        return decide_segment(case, trace, step, state_cid, DataDeadline(False, could_serve=True), context)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_referee_decides_adapter_segment(world: World, step: int) -> None:
    for provider, finding in ((HONEST, Finding(True, "step_correct")), (CHEAT, Finding(False, "step_false"))):
        start = world.store.add(Path(world.results[provider]["states"][step]).read_bytes())
        assert judged(world, provider, step, start if step else None) == finding


def test_referee_refuses_state_with_base_tensor(world: World) -> None:
    path = Path(world.results[HONEST]["states"][1])
    state = load_safetensors(path.read_bytes())
    base = next(iter(initial_parameters(replace(world.spec, adapter=None)).items()))
    more = world.store.add(save_safetensors(state | {f"parameters.{base[0]}": base[1]}))
    with raises_code(NoVerdict, "waiting_for_data"):
        judged(world, HONEST, 1, state_cid=more)
