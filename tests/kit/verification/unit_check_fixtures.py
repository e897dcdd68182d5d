"""A settled job for an outsider's replays: real training and store, a chain."""

import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kit.engines.ipfs_processes import StoreProcess
from kit.nodes.node_work_fixtures import JOB, TEXT, stored_spec
from kit.training import one_file
from training_gym.runtime.profile import CPU
from training_gym.spec.config import TrainingSpec
from training_gym.units.checkpoint import CheckpointManifest, initial_checkpoint
from zoo_compute.audit.unit_record import Place
from zoo_compute.chain.settlements import WindowOnChain
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.devnet.adversaries.adversary import executor_of
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.execution.executor import Executor
from zoo_compute.node.work.inputs import base_files
from zoo_compute.replay.check import AttemptTrace, UnitCheck, check_unit
from zoo_protocol import merkle
from zoo_protocol.content.cid import digest_of
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import canonical_json, keccak, to_hex
from zoo_protocol.messages import JobOrder
from zoo_protocol.payments.job_record import JobRecord, UnitRecord, WindowRecord, unit_leaf
from zoo_protocol.payments.receipt import JobSettlement, Settled

HONEST, CHEAT = "0x" + "01" * 20, "0x" + "02" * 20
PLACE = Place(JOB, 0, 1)
ORDER = JobOrder(HONEST, JOB, 1, 1, 1, 3, 200, 1, 1, 1, 1)
GONE = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
"""No store has it."""
TRAINING = {"rounds": 1, "inner_steps": 6, "segment_steps": 2, "batch_size": 2, "warmup_steps": 1}


@dataclass
class World:
    """A settled job with one honest attempt and one that skips the last step of every segment."""

    store: StoreProcess
    executor: Executor
    directory: Path
    record: JobRecord
    spec: TrainingSpec
    spec_hash: str
    results: dict[str, dict[str, Any]]
    lines: list[tuple[int, int, bool, JobRecord]] | None = None
    """(from round, to round, whether it is the last, record) of what was settled; None: all of ``record``."""
    struck: frozenset[str] = frozenset()
    market_record: JobRecord | None = None
    """What the market tells of a unit that is in no line."""

    def settled(self, job_id: str) -> JobSettlement:
        lines = [(0, 1, True, self.record)] if self.lines is None else self.lines
        parts = [
            Settled(1, 1, 1, first, end, 1, 0, 0, last, to_hex(digest_of(self.store.add(record.to_bytes()))), "0x")
            for first, end, last, record in lines
        ]
        return JobSettlement(tuple(parts), struck=self.struck)

    def opened(self, job_id: str) -> Any:
        return type("Opened", (), {"spec_hash": self.spec_hash})

    chain_id = 31337

    def address(self, contract: str) -> str:
        return JOB[:42]

    def disputable_until(self, root: str) -> int:
        return 1

    def window(self, window_id: int) -> WindowOnChain:
        return WindowOnChain(self.record.windows[0].root, 2, None)

    def check(self, place: Place = PLACE, find_trace: Any = lambda leaf: None) -> UnitCheck:
        with GatewayClient([self.store.gateway_url]) as gateway:
            return check_unit(
                place,
                self,  # type: ignore[arg-type]
                gateway,
                Path(tempfile.mkdtemp(dir=self.directory)),
                self.executor.environment_class,
                lambda task: self.executor.run(task, 60),
                find_trace,
                lambda place: self.market_record,
            )

    def change(self, index: int, **changes: Any) -> None:
        units = list(self.record.units)
        units[index] = replace(units[index], **changes)
        self.record = replace(self.record, units=units)


@pytest.fixture(name="built", scope="module")
def settled_job(store: StoreProcess, executor: Executor, tmp_path_factory: pytest.TempPathFactory) -> World:
    return settle_attempts(stored_spec(store, TRAINING), store, executor, tmp_path_factory.mktemp("attempts"))


def settle_attempts(spec: TrainingSpec, store: StoreProcess, executor: Executor, directory: Path) -> World:
    """Train a unit honestly and dishonestly, and settle it as a job of its own."""
    model = initial_checkpoint(spec)
    manifest = CheckpointManifest(JOB, 0, None, store.add(model), None, None, None, {}, 0, spec.spec_hash())
    checkpoint = store.add(manifest.to_bytes())
    for name, content in (("model", model), ("text", TEXT)):
        (directory / name).write_bytes(content)
    with GatewayClient([store.gateway_url]) as gateway:
        base = base_files(spec, Workspace(directory / "node"), gateway)
    units, results = [], {}
    with executor_of("skip-step")(CPU, 1 << 30, directory) as cheating:
        for provider, runs in ((HONEST, executor), (CHEAT, cheating)):
            output = directory / provider
            output.mkdir()
            task = {"kind": "train", "spec": spec.to_dict(), "job_id": JOB, "round": 0, "slot": 1}
            files = {
                "checkpoint": str(directory / "model"),
                "train_data": one_file(directory / "text", TEXT),
                "base": base,
            }
            result = runs.run(
                {**task, **files, "slot_state": None, "environment": executor.environment_class, "output": str(output)},
                60,
            )
            results[provider] = result
            units.append(
                UnitRecord(
                    round=0,
                    slot=1,
                    provider=provider,
                    status="verified" if provider == HONEST else "rejected",
                    reason=None if provider == HONEST else "incorrect_computation",
                    start_checkpoint_cid=checkpoint,
                    start_slot_state_cid=None,
                    start_restored_payload_cid=None,
                    start_eager_payload_cid=None,
                    top_k=spec.training.top_k,
                    trace_root=result["trace_root"],
                    payload_hash="0x" + "cc" * 32,
                    payload_cid=store.add(Path(result["payload"]).read_bytes()),
                    salt=None,
                    slot_state_cid=None,
                    commitment_signature=None,
                    window=0,
                    window_index=len(units),
                    sampling_bps=2500,
                    drawn_segments=[],
                    tolerated_segments=[],
                )
            )
    leaves = [unit_leaf(JOB, 0, 1, u.provider, u.trace_root or "", u.payload_hash or "") for u in units]
    window = WindowRecord(0, to_hex(merkle.root(leaves)), [to_hex(leaf) for leaf in leaves])
    canonical = canonical_json(spec.to_dict())
    record = JobRecord(
        job_id=JOB,
        network="devnet",
        tier="bronze",
        segments=3,
        environment_class=executor.environment_class,
        spec_cid=store.add(canonical),
        order={name: str(value) for name, value in asdict(ORDER).items()},
        order_signature="0x",
        outcome="completed",
        clearing_price_wei_per_gpu_hour="1",
        auction=None,
        units=units,
        slashes=[],
        checkpoints=[],
        windows=[window],
        initial_loss=None,
        final_loss=None,
        final_model_cid=None,
        times={},
        batch_cid=None,
    )
    return World(store, executor, directory, record, spec, to_hex(keccak(canonical)), results)


@pytest.fixture(name="world")
def outsiders_world(built: World, tmp_path: Path) -> World:
    return replace(built, directory=tmp_path)


def shown(world: World, provider: str, *boundaries: int) -> AttemptTrace:
    """Return the leaves of an attempt, and the states after these segments."""
    result = world.results[provider]
    states = {number: world.store.add(Path(result["states"][number]).read_bytes()) for number in boundaries}
    return AttemptTrace(result["leaves"], states)


@dataclass
class Chain:
    """Units of a replica in three rounds, each continued from the one before."""

    world: World
    files: list[Path]

    def check(self, round_: int) -> UnitCheck:
        return self.world.check(Place(JOB, round_, 1))


@pytest.fixture(name="chain")
def chain_of_units(built: World, tmp_path: Path) -> Chain:
    """Three units in a row; one model stands for all rounds' checkpoints."""
    spec = replace(built.spec, training=replace(built.spec.training, rounds=3))
    canonical = canonical_json(spec.to_dict())
    units, files, leaves = [], [], []
    for round_ in range(3):
        output = tmp_path / f"made-{round_}"
        output.mkdir()
        result = built.executor.run(
            {
                "kind": "train",
                "spec": spec.to_dict(),
                "job_id": JOB,
                "round": round_,
                "slot": 1,
                "checkpoint": str(built.directory / "model"),
                "train_data": one_file(built.directory / "text", TEXT),
                "slot_state": str(files[-1]) if files else None,
                "environment": built.executor.environment_class,
                "output": str(output),
            },
            60,
        )
        files.append(Path(result["slot_state"]))
        units.append(
            replace(
                built.record.units[0],
                round=round_,
                start_slot_state_cid=units[-1].slot_state_cid if units else None,
                slot_state_cid=cid_of_file(files[-1].read_bytes()),
                trace_root=result["trace_root"],
                window_index=round_,
            )
        )
        leaves.append(unit_leaf(JOB, round_, 1, HONEST, result["trace_root"], units[-1].payload_hash or ""))
    window = WindowRecord(0, to_hex(merkle.root(leaves)), [to_hex(leaf) for leaf in leaves])
    record = replace(built.record, units=units, windows=[window], spec_cid=built.store.add(canonical))
    directory = tmp_path / "outsider"
    directory.mkdir()
    return Chain(replace(built, record=record, directory=directory, spec_hash=to_hex(keccak(canonical))), files)
