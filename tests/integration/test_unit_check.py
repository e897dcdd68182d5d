"""A unit replayed by an outsider: real training, a real store, a chain that says what was settled."""

import json
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ipfs_processes import StoreProcess

from training_gym.checkpoint import CheckpointManifest, initial_checkpoint
from training_gym.config import TrainingSpec
from training_gym.data.dataset import DatasetManifest, describe_split
from training_gym.profile import CPU
from zoo_compute.blockstore import BlockNotFound
from zoo_compute.devnet.cheat import executor_of
from zoo_compute.errors import ConfigError, Mismatch, ZooError
from zoo_compute.gateway import GatewayClient
from zoo_compute.node.executor import Executor
from zoo_compute.settlement_events import ChainDisagrees, WindowOnChain
from zoo_compute.unit_check import Place, Shown, UnitCheck, check_unit
from zoo_protocol import merkle
from zoo_protocol.cid import digest_of
from zoo_protocol.hashing import canonical_json, from_hex, keccak, to_hex
from zoo_protocol.record import JobRecord, SlashRecord, UnitRecord, WindowRecord, unit_leaf
from zoo_protocol.unixfs import cid_of_file

JOB = "0x" + "ab" * 32
HONEST, CHEAT = "0x" + "01" * 20, "0x" + "02" * 20
PLACE = Place(JOB, 0, 1)
GONE = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
"""No store has it."""
TEXT = b"".join(b"line %d of a text that a model can learn\n" % n for n in range(500))
TRAINING = {"rounds": 1, "inner_steps": 6, "segment_steps": 2, "batch_size": 2, "warmup_steps": 1}
MODEL = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "sequence_length": 16}


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
    settled: bool = True

    # --- the chain

    def settlement(self, job_id: str) -> Any:
        if not self.settled:
            raise ChainDisagrees("not_settled", f"job {job_id} was not settled to its end")
        digest = to_hex(digest_of(self.store.add(self.record.to_bytes())))
        return type("Settlement", (), {"parts": [type("Part", (), {"record": digest})]})

    def opened(self, job_id: str) -> Any:
        return type("Opened", (), {"spec_hash": self.spec_hash})

    def window(self, window_id: int) -> WindowOnChain:
        return WindowOnChain(self.record.windows[0].root, 2, None)

    # --- the outsider

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
            )

    def change(self, index: int, **changes: Any) -> None:
        units = list(self.record.units)
        units[index] = replace(units[index], **changes)
        self.record = replace(self.record, units=units)


@pytest.fixture(scope="module")
def built(store: StoreProcess, executor: Executor, tmp_path_factory: pytest.TempPathFactory) -> World:
    directory = tmp_path_factory.mktemp("attempts")
    split = describe_split(store.add(TEXT), TEXT)
    dataset = store.add(DatasetManifest(split, split).to_bytes())
    document = {"model_config": MODEL, "data_config": {"dataset": dataset}, "training_config": TRAINING}
    spec = TrainingSpec.from_dict(document)
    model = initial_checkpoint(spec)
    manifest = CheckpointManifest(JOB, 0, None, store.add(model), None, None, None, {}, 0, spec.spec_hash())
    checkpoint = store.add(manifest.to_bytes())
    for name, content in (("model", model), ("text", TEXT)):
        (directory / name).write_bytes(content)
    units, results = [], {}
    with executor_of("skip-step")(CPU, 1 << 30, directory) as cheating:
        for provider, runs in ((HONEST, executor), (CHEAT, cheating)):
            output = directory / provider
            output.mkdir()
            task = {"kind": "train", "spec": spec.to_dict(), "job_id": JOB, "round": 0, "slot": 1}
            files = {"checkpoint": str(directory / "model"), "train_data": str(directory / "text")}
            result = runs.run(
                {
                    **task,
                    **files,
                    "slot_state": None,
                    "environment": executor.environment_class,
                    "output": str(output),
                },
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
        order={},
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


@pytest.fixture
def world(built: World, tmp_path: Path) -> World:
    return replace(built, directory=tmp_path)


def shown(world: World, provider: str, *boundaries: int) -> Shown:
    """What an attempt showed: its leaves, and the states after so many segments."""
    result = world.results[provider]
    states = {number: world.store.add(Path(result["states"][number]).read_bytes()) for number in boundaries}
    return Shown(result["leaves"], states)


def test_one_replay_judges_all_attempts(world: World) -> None:
    honest, cheat = world.check().attempts
    assert (honest.provider, honest.agrees, honest.difference, honest.misjudged) == (HONEST, True, None, False)
    assert (cheat.provider, cheat.agrees, cheat.misjudged) == (CHEAT, False, False)
    assert cheat.difference is not None
    assert cheat.difference.first_step is None  # nobody showed its leaves
    assert (cheat.difference.where, cheat.difference.entries > 0) == ("payload", True)


def test_the_first_false_steps_and_tensor_are_found(world: World) -> None:
    served = shown(world, CHEAT, 2, 1)
    difference = world.check(find_trace=lambda leaf: served).attempts[1].difference
    assert difference is not None
    assert (difference.first_step, difference.last_step, difference.where) == (1, 2, "state 1")
    assert difference.tensor is not None
    assert difference.tensor.startswith("exp_avg.")  # first in the order of names, and a skipped step moves it
    assert 0 < difference.entries <= difference.of
    assert difference.largest > 0


def test_the_evidence_of_a_slash_says_it_too(world: World) -> None:
    served = shown(world, CHEAT, 1)
    evidence = {"unit": {"leaves": served.leaves}, "segment": 1, "state_cid": served.states[1]}
    cid = world.store.add(canonical_json(evidence))
    slash = SlashRecord(0, 1, CHEAT, "incorrect_computation", to_hex(digest_of(cid)), cid, "operator", None)
    world.record = replace(world.record, slashes=[slash])
    difference = world.check().attempts[1].difference
    assert difference is not None
    assert (difference.first_step, difference.where) == (1, "state 1")


@pytest.mark.parametrize("payload", ["gone", "no payload"])
def test_what_was_paid_for_a_false_unit_is_said_though_its_files_are_gone(world: World, payload: str) -> None:
    """A market that paid for it, or its provider, could have them removed."""
    cid = GONE if payload == "gone" else world.store.add(b"no payload")
    world.change(1, status="verified", reason=None, payload_cid=cid)
    served = replace(shown(world, CHEAT), states={1: GONE, 3: GONE, 99: GONE})
    cheat = world.check(find_trace=lambda leaf: served).attempts[1]
    assert cheat.misjudged
    assert cheat.difference is not None
    assert (cheat.difference.first_step, cheat.difference.where) == (1, None)


def test_files_of_a_false_unit_are_read_no_further_than_the_specification_has_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its provider delivered or showed may be as large as it likes; it is held in memory."""
    fetch, asked = GatewayClient.fetch, {}

    def noted(gateway: GatewayClient, cid: str, *, max_bytes: int) -> bytes:
        asked[cid] = max_bytes
        return fetch(gateway, cid, max_bytes=max_bytes)

    monkeypatch.setattr(GatewayClient, "fetch", noted)
    payload, state = (world.store.add(bytes([kind]) * (1 << 20)) for kind in range(2))
    world.change(1, payload_cid=payload)
    served = replace(shown(world, CHEAT), states={1: state})
    cheat = world.check(find_trace=lambda leaf: served).attempts[1]
    assert cheat.difference is not None
    assert (cheat.difference.first_step, cheat.difference.where) == (1, None)
    assert 0 < asked[payload] < 1 << 20
    assert 0 < asked[state] < 1 << 20


def test_what_is_false_is_said_though_the_evidence_against_it_is_gone(world: World) -> None:
    """Or a market could name some in its record, beside what it paid for."""
    slash = SlashRecord(0, 1, CHEAT, "incorrect_computation", to_hex(digest_of(GONE)), GONE, "operator", None)
    world.record = replace(world.record, slashes=[slash])
    world.change(1, status="verified", reason=None)
    cheat = world.check(find_trace=lambda leaf: shown(world, CHEAT, 1)).attempts[1]
    assert cheat.misjudged
    assert cheat.difference is not None
    assert (cheat.difference.first_step, cheat.difference.where) == (1, "state 1")


@pytest.mark.parametrize("content", [b"\xff", b"[" * 100_000, b"[]", b'{"state_cid":null,"unit":{"leaves":[1]}}'])
def test_evidence_that_is_none_is_refused(world: World, content: bytes) -> None:
    cid = world.store.add(content)
    slash = SlashRecord(0, 1, CHEAT, "incorrect_computation", to_hex(digest_of(cid)), cid, "operator", None)
    world.record = replace(world.record, slashes=[slash])
    with pytest.raises(Mismatch) as error:
        world.check()
    assert error.value.code == "bad-evidence"


def test_a_state_that_is_not_the_committed_one_proves_nothing(world: World) -> None:
    foreign = replace(shown(world, CHEAT), states=shown(world, HONEST, 1).states)
    difference = world.check(find_trace=lambda leaf: foreign).attempts[1].difference
    assert difference is not None
    assert (difference.first_step, difference.where) == (1, "payload")


def test_leaves_that_are_not_the_committed_ones_are_refused(world: World) -> None:
    with pytest.raises(Mismatch) as error:
        world.check(find_trace=lambda leaf: shown(world, HONEST))
    assert error.value.code == "wrong-trace"


def test_what_was_paid_or_punished_wrongly_is_said(world: World) -> None:
    world.change(0, status="rejected", reason="incorrect_computation")
    world.change(1, status="verified", reason=None)
    assert [attempt.misjudged for attempt in world.check().attempts] == [True, True]


@pytest.mark.parametrize(
    ("place", "code"),
    [(Place(JOB, 7, 1), "unit-unknown"), (Place("0x" + "00" * 32, 0, 1), "wrong-record")],
)
def test_a_unit_that_is_not_there_is_named(world: World, place: Place, code: str) -> None:
    with pytest.raises(ZooError) as error:
        world.check(place)
    assert error.value.code == code


def test_a_job_that_is_not_settled_must_be_waited_for(world: World) -> None:
    world.settled = False
    with pytest.raises(ZooError) as error:
        world.check()
    assert (error.value.code, bool(error.value.remedy)) == ("job-not-settled", True)


def test_bits_of_another_class_are_not_compared(world: World) -> None:
    world.record = replace(world.record, environment_class="0x" + "99" * 32)
    with pytest.raises(ZooError) as error:
        world.check()
    assert error.value.code == "environment-mismatch"


def test_a_commitment_must_stand_in_a_window_on_chain(world: World) -> None:
    world.change(0, trace_root="0x" + "77" * 32)
    with pytest.raises(Mismatch) as error:
        world.check()
    assert error.value.code == "not-in-window"


def test_another_specification_than_the_escrowed_is_refused(world: World) -> None:
    world.spec_hash = "0x" + "00" * 32
    with pytest.raises(Mismatch) as error:
        world.check()
    assert error.value.code == "wrong-spec"


def test_data_that_is_gone_is_named_by_its_cid(world: World) -> None:
    world.change(0, start_checkpoint_cid=GONE)
    world.record = replace(world.record, units=[world.record.units[0]])
    with pytest.raises(BlockNotFound, match=GONE):
        world.check()


def test_what_starts_from_a_slot_state_that_only_its_node_has_is_said(world: World) -> None:
    world.change(0, start_slot_state_cid=GONE)
    found = world.check()  # the other attempt began with what everybody has
    assert [attempt.provider for attempt in found.attempts] == [CHEAT]
    assert [left.provider for left in found.unchecked] == [HONEST]
    world.change(1, start_slot_state_cid=GONE)
    with pytest.raises(ZooError) as error:
        world.check()
    assert (error.value.code, bool(error.value.remedy)) == ("slot-state-held-by-node", True)


@dataclass
class Chain:
    """A slot's units of three rounds, each from what the one before handed on; nobody published a slot state."""

    world: World
    files: list[Path]

    def check(self, round_: int) -> UnitCheck:
        return self.world.check(Place(JOB, round_, 1))


@pytest.fixture
def chain(built: World, tmp_path: Path) -> Chain:
    """The first attempt's unit again and two after it; the same model stands for all rounds' checkpoints."""
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
                "train_data": str(built.directory / "text"),
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


def test_slot_states_that_nobody_has_are_made_again(chain: Chain) -> None:
    found = chain.check(2)
    assert [(attempt.provider, attempt.agrees) for attempt in found.attempts] == [(HONEST, True)]
    assert (found.earlier, found.unchecked) == (["0:1", "1:1"], [])
    chain.world.store.add(chain.files[0].read_bytes())
    assert chain.check(2).earlier == ["1:1"]  # from the last that is public


def test_an_earlier_unit_that_handed_on_something_else_is_named(chain: Chain) -> None:
    false = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
    chain.world.change(0, slot_state_cid=false)
    chain.world.change(1, start_slot_state_cid=false)
    with pytest.raises(ZooError, match=f"round 0 give another slot state .* verify that unit: {JOB}:0:1") as error:
        chain.check(2)
    assert error.value.code == "slot-state-held-by-node"


def test_a_result_is_plain_json(world: World) -> None:
    document = json.loads(json.dumps(world.check().to_dict()))
    assert document["attempts"][0]["right_root"] == world.results[HONEST]["trace_root"]
    assert from_hex(document["environment_class"])


NO_PLACES = ["", JOB, f"{JOB}:1", f"{JOB}:a:0", f"{JOB[2:]}:0:0", f"{JOB}:0:-1", f"{JOB}:0:\u0663", f"{JOB}:0:{10**9}"]


@pytest.mark.parametrize("text", [*NO_PLACES, "0x" + "zz" * 32 + ":0:0", "0x" + "a " * 32 + ":0:0", f" {JOB}:0:0"])
def test_a_malformed_id_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Place.parse(text)


def test_the_case_of_hexadecimal_digits_does_not_matter() -> None:
    assert Place.parse("0x" + "AB" * 32 + ":1:2") == Place("0x" + "ab" * 32, 1, 2)
