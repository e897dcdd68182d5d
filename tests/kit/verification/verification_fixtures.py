"""The market of jobs with verifiers and scripted final events; nothing is mined."""

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from sqlalchemy import select, update

from kit import records
from kit.jobs.jobs_fixtures import ENVIRONMENT, ZEN, World
from kit.jobs.unit_results import ACKNOWLEDGER, DOMAIN, Work
from market.chain.contracts.codec import ChainEvent
from market.chain.models import TxIntent
from market.domain.lifecycle import IntentStatus
from market.domain.network import DEVNET
from market.jobs.models import Slot
from market.platform.db.base import utc_now
from market.platform.storage.client import Storage
from market.providers.models import Provider
from market.settings import Settings
from market.training.deliveries import service as deliveries
from market.training.leases import service as leases
from market.training.leases.schemas import CommitReplay, CompleteReplay, CompleteReveal, LeaseKind, LeaseView
from market.training.units.models import Unit
from market.verification.decisions import service as decisions_service
from market.verification.penalties.models import Slash
from market.verification.samples.models import Replay, Sample
from market.verification.windows import service as windows_service
from market.verification.windows.models import Window
from training_gym.model.tensors import save_arrays
from training_gym.units.replica_state import error_feedback_digest
from training_gym.units.trace import inner_leaf, start_state
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import ReplayCommitment, sign, typed_data
from zoo_protocol.payments.job_record import result_hash
from zoo_protocol.verification.rules import sampling_rate_bps
from zoo_protocol.verification.sampling import draw_segments

RATE = sampling_rate_bps(0, DEVNET.newcomer_sampling_bps, DEVNET.sampling_floor_bps)


@dataclass
class ScriptedChain:
    """A chain with only a head, in place of the chain's views."""

    head: int = 100
    asked: int = field(default=0)

    def head_number(self) -> int:
        self.asked += 1
        return self.head


@pytest.fixture(name="world")
def verification_world(database_url: str, storage: Storage, settings: Settings) -> Iterator["VerificationWorld"]:
    world = VerificationWorld(database_url, storage, settings)
    yield world
    world.database.dispose()


@pytest.fixture(name="verifiers")
def several_verifiers(world: "VerificationWorld", request: pytest.FixtureRequest) -> list[str]:
    """Return three verifiers, or as many as a test's indirect parameter."""
    return [world.verifier() for _ in range(getattr(request, "param", 3))]


@pytest.fixture(name="nodes")
def two_nodes(world: "VerificationWorld") -> list[str]:
    world.nodes = [world.node(), world.node()]
    return world.nodes


@pytest.fixture(name="unit_ids")
def delivered_units(world: "VerificationWorld", nodes: list[str]) -> list[int]:
    """Ids of the units of the first round, delivered by the two nodes of a running job."""
    job_id = world.delivered_job(nodes)
    world.unit_ids = [unit.id for unit in world.units(job_id)]
    return world.unit_ids


class VerificationWorld(World):
    def __init__(self, database_url: str, storage: Storage, settings: Settings) -> None:
        super().__init__(database_url, storage, settings)
        self.chain = ScriptedChain()
        self.states: dict[str, bytes] = {}
        self.nodes: list[str] = []
        self.unit_ids: list[int] = []
        self.verifiers: list[str] = []
        self._window_ids = count()

    def verifier(self, *, environment: str = ENVIRONMENT, address: str | None = None) -> str:
        is_staked = address is not None
        address = address or str(self.wallet().address)
        self.add(records.verifier(address, environment_class=environment, last_seen_at=utc_now()))
        if not is_staked:
            self.add(records.stake(address, 500 * ZEN))
        self.verifiers.append(address)
        return address

    def second_job(self, node: str) -> str:
        self.execute(update(Slot).where(Slot.provider == node).values(provider=None))
        return self.delivered_job([node])

    def drawn_unit(self, node: str) -> int:
        """Create a unit whose first segment is sampled and its start revealed; return its id."""
        job_id = self.delivered_job([node])
        (unit,) = self.units(job_id)
        self.challenge({unit.id: [0]})
        self.reveal(node)
        return unit.id

    def advance(self) -> None:
        decisions_service.advance(self.database, self.storage, self.settings, self.network, self.chain)  # type: ignore[arg-type]

    def final(self, contract: str, name: str, **args: Any) -> ChainEvent:
        tx, block = to_hex(secrets.token_bytes(32)), to_hex(secrets.token_bytes(32))
        return ChainEvent(contract, name, args, tx, self.chain.head, block, 0, int(utc_now().timestamp()))

    def commit_window(self) -> ChainEvent:
        self.advance()
        root, leaf_count = self.intents("commit_window")[-1].arguments
        seed_block = self.chain.head + 2
        event = self.final(
            "WorkWindows",
            "WindowCommitted",
            id=next(self._window_ids),
            root=root,
            leafCount=int(str(leaf_count)),
            seedBlock=seed_block,
        )
        with self.database.transaction() as session:
            windows_service.on_window_committed(session, event)
        return event

    def latch(self, committed: ChainEvent, seed: str) -> ChainEvent:
        self.chain.head = committed.args["seedBlock"] + 1
        self.advance()
        event = self.final("WorkWindows", "SeedLatched", id=committed.args["id"], seed=seed)
        with self.database.transaction() as session:
            windows_service.on_seed_latched(session, event)
        self.advance()
        return event

    def challenge(self, wanted: Mapping[int, list[int]]) -> None:
        """Sample the ``wanted`` segments of the delivered units by a window's seed."""
        roots = {unit_id: from_hex(self.unit(unit_id).trace_root or "") for unit_id in wanted}
        committed = self.commit_window()
        while True:
            seed = secrets.token_bytes(32)
            drawn = {i: draw_segments(seed, root, self.spec.segments, RATE) for i, root in roots.items()}
            if drawn == wanted:
                break
        self.latch(committed, to_hex(seed))

    def challenge_first(self, *segments: int) -> None:
        """Sample these segments of the first of ``unit_ids``, and none of the second."""
        first, second = self.unit_ids
        self.challenge({first: list(segments), second: []})

    def work(self, node: str, **changes: Any) -> Work:
        """Work as in the base class; the second segment starts from a revealable state."""
        work = super().work(node, **changes)
        unit = work.unit()
        state, feedback = start_state(unit), error_feedback_digest(unit.slot_state.error_feedback)
        work.leaves[1] = inner_leaf(unit, 1, state, feedback)
        self.states[node] = save_arrays(state)
        return work

    def reveal(self, node: str) -> LeaseView | None:
        lease = self.pull(node, LeaseKind.REVEAL)
        if lease is not None:
            shown: dict[str, str | None] = {"state_cid": None, "slot_state_cid": None}
            if lease.task["segment"]:
                shown["state_cid"] = self.storage.put(self.states[node], max_bytes=2**20).cid
            if (cid := lease.task["slot_state_cid"]) is not None:
                shown["slot_state_cid"] = self.storage.put(self.kept[node][cid], max_bytes=2**20).cid
            self.complete(lease, node, CompleteReveal(token=lease.token, **shown))
            self.advance()
        return lease

    def commit_replay(
        self,
        verifier: str,
        lease: LeaseView,
        leaf: str,
        salt: str,
        inner_digest: str | None = None,
        signer: str | None = None,
    ) -> None:
        result, task = result_hash(leaf, inner_digest, verifier, salt), lease.task
        place = task["job_id"], task["round"], task["slot"], task["segment"]
        own = ReplayCommitment(*place, task["start_leaf"], task.get("verifier_class", task["environment"]), result)
        signature = sign(to_hex(bytes(self.wallets[signer or verifier].key)), typed_data(DOMAIN, own))
        with self.database.transaction() as session:
            commitment = CommitReplay(token=lease.token, result_hash=result, commitment_signature=signature)
            deliveries.commit(session, self.network, DOMAIN, ACKNOWLEDGER, lease.id, verifier, commitment)

    def replay(self, verifier: str, leaf: str, inner_digest: str | None = None) -> LeaseView:
        """Pull the verifier's replay, answer that it ends in ``leaf``, and process it."""
        lease = self.pulled(verifier, LeaseKind.REPLAY)
        salt = to_hex(secrets.token_bytes(32))
        self.commit_replay(verifier, lease, leaf, salt, inner_digest)
        result = CompleteReplay(token=lease.token, end_leaf=leaf, inner_digest=inner_digest, salt=salt)
        self.complete(lease, verifier, result)
        self.advance()
        return lease

    def give_up(self, node: str, kind: LeaseKind, code: str) -> None:
        lease = self.pulled(node, kind)
        with self.database.transaction() as session:
            leases.fail(session, lease.id, node, lease.token, code, "a test")
        self.advance()

    def asked(self, among: list[str] | None = None) -> str:
        (verifier,) = self.all(select(Replay.verifier).where(Replay.status.in_(["assigned", "committed"])))
        assert verifier in (among or self.verifiers)
        return str(verifier)

    def unit(self, unit_id: int) -> Unit:
        unit: Unit = self.get(Unit, unit_id)
        return unit

    def claim(self, unit_id: int, segment: int) -> str:
        leaves = self.unit(unit_id).leaves
        assert leaves is not None
        return leaves[segment + 1]

    def intents(self, kind: str) -> list[TxIntent]:
        return self.all(select(TxIntent).where(TxIntent.kind == kind).order_by(TxIntent.id))

    def put_intents(self, status: IntentStatus, ago: timedelta) -> None:
        """Set every chain call to ``status``, as of ``ago``."""
        self.execute(update(TxIntent).values(status=status, updated_at=utc_now() - ago))

    def samples(self) -> list[Sample]:
        return self.all(select(Sample).order_by(Sample.id))

    def outcomes(self, sample_id: int | None = None) -> dict[str, tuple[str, str | None]]:
        """Return (status, reason) of the replays, of one sample or of all, by verifier."""
        found = [replay for replay in self.replays() if sample_id in (None, replay.sample_id)]
        return {replay.verifier: (replay.status, replay.reason) for replay in found}

    def replays(self) -> list[Replay]:
        return self.all(select(Replay).order_by(Replay.id))

    def slashes(self) -> list[Slash]:
        return self.all(select(Slash).order_by(Slash.id))

    def windows(self) -> list[Window]:
        return self.all(select(Window).order_by(Window.id))

    def provider(self, address: str) -> Provider:
        provider: Provider = self.get(Provider, address)
        return provider

    def pass_due(self, sample_id: int) -> None:
        with self.database.transaction() as session:
            let_time_pass(session.get_one(Sample, sample_id), is_taken=True)

    def pass_deadline(self, sample_id: int) -> None:
        with self.database.transaction() as session:
            let_time_pass(session.get_one(Sample, sample_id))


def let_time_pass(sample: Sample, *, is_taken: bool = False) -> None:
    """Let the sample's state be due, or its final deadline pass, a second ago."""
    limit = sample.reveal_deadline_at if is_taken else sample.reveal_until_at
    assert limit is not None
    move_request(sample, utc_now() - limit - timedelta(seconds=1))


def move_request(sample: Sample, delay: timedelta) -> None:
    """Move the request of the sample's state, and both its deadlines."""
    for column in ("reveal_requested_at", "reveal_deadline_at", "reveal_until_at"):
        setattr(sample, column, getattr(sample, column) + delay)
