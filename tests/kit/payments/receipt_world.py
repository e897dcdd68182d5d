"""A settled job with real payloads and models, on a chain and gateway that can lie."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from eth_account import Account

from kit.training import TEXT, TINY
from training_gym.aggregate.aggregation import aggregate
from training_gym.aggregate.outer_step import OuterState, initial_outer_state, load_outer_state, save_outer_state
from training_gym.aggregate.robust import WEIGHT_ONE
from training_gym.compress.payload_format import encode
from training_gym.data.dataset import DatasetManifest, describe_shard
from training_gym.model.layout import Arrays
from training_gym.spec.config import TrainingConfig, TrainingSpec
from training_gym.units.checkpoint import CheckpointManifest, initial_checkpoint, load_state, save_state
from zoo_compute.audit.losses import LossFunction
from zoo_compute.audit.receipt import verify_job
from zoo_compute.chain.settlements import ChainDisagrees, Penalty, Posted, WindowOnChain
from zoo_compute.content.blockstore import BlockNotFound
from zoo_protocol import merkle
from zoo_protocol.content.cid import digest_of
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import canonical_json, from_hex, keccak, sha256, to_hex
from zoo_protocol.messages import Domain, JobOrder, UnitCommitment, sign, struct_hash, typed_data
from zoo_protocol.payments import job_record
from zoo_protocol.payments.job_record import (
    AggregationRecord,
    CheckpointRecord,
    JobRecord,
    PaidUnit,
    ReplayRecord,
    SlashRecord,
    UnitRecord,
)
from zoo_protocol.payments.receipt import JobSettlement, Opened, Settled, Slashed, net_unit_price, unit_price
from zoo_protocol.payments.settlement_batch import JobLine, build_batch
from zoo_protocol.verification import trace
from zoo_protocol.verification.sampling import draw_segments

ESCROW, TREASURY = Account.create().address, Account.create().address
PAYER, HONEST, CHEAT = Account.create(), Account.create(), Account.create()
VERIFIERS = [Account.create(), Account.create()]
OTHER_JOB = to_hex(sha256(b"another job"))
DOMAIN = Domain(31337, ESCROW)
PRICE, WEIGHT, BUDGET, FEE_BPS = 25 * 10**17, 3_870_000, 10**18, 500
SEED = to_hex(sha256(b"seed"))
ENVIRONMENT = to_hex(sha256(b"class"))


def slot_state_of(round_: int, slot: int) -> str:
    return cid_of_file(f"slot state {round_} {slot}".encode())


Loss = tuple[str, str, int]
Losses = tuple[Loss, Loss]
"""Validation losses of the first and the last model with their errors and samples, as in a record."""
LOSSES = ("5.500000", "0.010000", 4), ("3.000000", "0.008000", 4)


class World:
    """A settled job of two rounds: an honest replica, and one that is slashed in the first."""

    chain_id = 31337

    def __init__(self, spec: Callable[["World"], TrainingSpec] | None = None, losses: Losses = LOSSES) -> None:
        """Settle a job.

        Args:
            spec: stores a job's inputs and returns its specification; None: a whole tiny model.
            losses: stated losses of the first and the last model.
        """
        self.files: dict[str, bytes] = {}
        training = TrainingConfig(rounds=2, inner_steps=4, segment_steps=1, warmup_steps=1)
        self.spec = TrainingSpec(TINY, self.dataset(), training) if spec is None else spec(self)
        spec = canonical_json(self.spec.to_dict())
        spec_hash = to_hex(keccak(spec))
        self.order = JobOrder(PAYER.address, spec_hash, 1, 4, WEIGHT, 4, 200, BUDGET, PRICE, 2_000_000_000, 7)
        self.job_id = struct_hash(self.order)
        self.numbers = np.random.default_rng(1)
        self.parameters, self.state = self._start()
        checkpoints = [self.checkpoint(0, None, losses[0])]
        units = [self.unit(0, 0, HONEST, checkpoints[0]), self.unit(0, 1, CHEAT, checkpoints[0], "rejected")]
        checkpoints.append(self.checkpoint(1, self.joined(units[0], checkpoints[0]), None))  # its loss was unknown
        again = self.unit(1, 0, HONEST, checkpoints[1])
        units.append(replace(again, start_slot_state_cid=units[0].slot_state_cid))
        checkpoints.append(self.checkpoint(2, self.joined(units[2], checkpoints[1]), losses[1]))
        leaves = [self.leaf(unit) for unit in units]
        root = to_hex(merkle.root([from_hex(leaf) for leaf in leaves]))
        evidence = self.put(canonical_json({"job_id": self.job_id}))
        found = "incorrect_computation", to_hex(digest_of(evidence)), evidence
        slash = SlashRecord(0, 1, CHEAT.address, *found, "operator", "too_few_referees")
        self.record = JobRecord(
            job_id=self.job_id,
            network="devnet",
            tier="bronze",
            segments=4,
            environment_class=ENVIRONMENT,
            spec_cid=self.put(spec),
            order={name: str(getattr(self.order, name)) for name in self.order.__slots__},
            order_signature=sign(to_hex(bytes(PAYER.key)), typed_data(DOMAIN, self.order)),
            outcome="completed",
            clearing_price_wei_per_gpu_hour=str(PRICE),
            auction=None,
            units=[replace(unit, window_index=index) for index, unit in enumerate(units)],
            slashes=[slash],
            checkpoints=checkpoints,
            windows=[job_record.WindowRecord(3, root, leaves)],
            initial_loss=losses[0][0],
            final_loss=losses[1][0],
            final_model_cid=checkpoints[-1].model_cid,
            times={},
            batch_cid=None,
        )
        gross = unit_price(PRICE, WEIGHT)
        net = net_unit_price(PRICE, WEIGHT, FEE_BPS)
        fee = gross - net
        self.on_open = Opened(PAYER.address, 1, 4, WEIGHT, BUDGET, PRICE, FEE_BPS, self.order.specHash, "0xopen")
        self.on_settle = Settled(1, PRICE, 2, 0, 2, 2 * net, 2 * fee, BUDGET - 2 * gross, True, "", "0xsettle")
        self.other_part = replace(self.on_settle, units=1, paid=net, fee=fee, refund=0, last=False, record=SEED)
        self.posted = Posted("", 3 * net, 3 * fee, {HONEST.address: 2 * net}, {}, 3 * fee)
        self.batch_units: list[PaidUnit] | None = None
        self.posted_root: str | None = None
        self.deposit = BUDGET
        self.moved = {PAYER.address: BUDGET - 2 * gross}
        self.on_chain = WindowOnChain(root, 3, SEED, 5)
        self.slashed: Slashed | None = Slashed(CHEAT.address, "incorrect_computation", 500, "0xslash")
        self.convictions = [Penalty(CHEAT.address, 2, slash.evidence, 6)]
        self.disputed: dict[str, UnitCommitment] = {}
        self.staked = {verifier.address: 2 for verifier in VERIFIERS}
        self.earlier: list[tuple[int, str, Settled]] = []
        self.upheld: tuple[str, str] | None = None

    def _start(self) -> tuple[Arrays, OuterState]:
        if self.spec.start_checkpoint is None:
            return load_state(self.spec, initial_checkpoint(self.spec)), initial_outer_state(self.spec)
        start = CheckpointManifest.from_bytes(self.files[self.spec.start_checkpoint])
        state = load_outer_state(self.spec, self.files[start.outer_state or ""])
        return load_state(self.spec, self.files[start.model]), state

    def dataset(self) -> str:
        """Store a dataset and return the CID of its manifest."""
        split = describe_shard(self.put(TEXT), TEXT)
        return self.put(DatasetManifest((split,), (split,)).to_bytes())

    def put(self, data: bytes) -> str:
        self.files[cid_of_file(data)] = data
        return cid_of_file(data)

    def unit(
        self, round_: int, slot: int, provider: Any, start: CheckpointRecord, status: str = "verified"
    ) -> UnitRecord:
        payload = encode(self.spec, self.numbers.standard_normal(self.spec.num_parameters()).astype(np.float32) / 100)
        salt = sha256(f"salt {round_} {slot}".encode())
        leaves = [sha256(f"leaf {round_} {slot} {boundary}".encode()) for boundary in range(5)]
        root = to_hex(trace.trace_root(leaves))
        bound = to_hex(trace.payload_hash(sha256(payload), provider.address, salt))
        commitment = UnitCommitment(self.job_id, round_, slot, provider.address, root, bound)
        made = UnitRecord(
            round=round_,
            slot=slot,
            provider=provider.address,
            status=status,
            reason=None if status == "verified" else "incorrect_computation",
            start_checkpoint_cid=start.cid,
            start_slot_state_cid=None,
            start_restored_payload_cid=None,
            start_eager_payload_cid=None,
            top_k=self.spec.training.top_k,
            trace_root=root,
            payload_hash=bound,
            payload_cid=self.put(payload),
            salt=to_hex(salt),
            slot_state_cid=slot_state_of(round_, slot),  # it stays on its node
            commitment_signature=sign(to_hex(bytes(provider.key)), typed_data(DOMAIN, commitment)),
            window=3,
            window_index=None,
            sampling_bps=2_500,
            drawn_segments=draw_segments(from_hex(SEED), from_hex(root), 4, 2_500),
            tolerated_segments=[],
            leaves=[to_hex(leaf) for leaf in leaves],
        )
        [drawn] = made.drawn_segments
        own = self.replay(made, VERIFIERS[0], made.leaves[drawn + 1])
        refuting = [self.replay(made, verifier, SEED, verdict="refuted") for verifier in VERIFIERS]
        return replace(made, replays=[own] if status == "verified" else refuting)

    def replay(self, unit: UnitRecord, signer: Any, end_leaf: str, **changes: Any) -> ReplayRecord:
        """Return a result of ``signer`` on the drawn segment of a unit."""
        [segment] = unit.drawn_segments
        given: dict[str, Any] = {"environment_class": ENVIRONMENT, "verdict": "bit_equal", "segment": segment} | changes
        result = ReplayRecord(
            verifier=signer.address, signature="", end_leaf=end_leaf, inner_digest=None, salt=SEED, **given
        )
        signed = result.commitment(self.job_id, unit.round, unit.slot, unit.leaves[segment])
        return replace(result, signature=sign(to_hex(bytes(signer.key)), typed_data(DOMAIN, signed)))

    def replayed(self, *signers: Any, **changes: Any) -> None:
        """Replace the results on the first unit."""
        first = self.record.units[0]
        [segment] = first.drawn_segments
        end = changes.pop("end_leaf", first.leaves[segment + 1])
        self.change_unit(replays=[self.replay(first, signer, end, **changes) for signer in signers])

    def leaf(self, unit: UnitRecord) -> str:
        return unit.leaf(self.job_id) or ""

    def joined(self, unit: UnitRecord, parent: CheckpointRecord) -> tuple[CheckpointRecord, UnitRecord, bytes]:
        """Aggregate the payload of one unit; return the arguments of the checkpoint after it."""
        payload = self.files[unit.payload_cid or ""]
        made = aggregate(self.spec, self.parameters, {0: payload}, None, self.state)
        self.parameters, self.state = made.parameters, made.outer_state
        return parent, unit, made.update

    def checkpoint(
        self, round_: int, made: tuple[CheckpointRecord, UnitRecord, bytes] | None, loss: Loss | None
    ) -> CheckpointRecord:
        model = self.put(save_state(self.parameters))
        begun = self.spec.start_checkpoint and self.put(save_outer_state(self.spec, self.state))
        linked: tuple[Any, ...] = (None, model, begun, None, None, {})
        if made is not None:
            parent, unit, update = made
            placed = job_record.PlacedPayload(0, unit.round, 0, unit.payload_cid or "", WEIGHT_ONE, "included")
            aggregation = AggregationRecord(self.job_id, unit.round, parent.cid, WEIGHT_ONE, [placed])
            state = self.put(save_outer_state(self.spec, self.state))
            files = state, self.put(update), self.put(aggregation.to_bytes())
            linked = (parent.cid, model, *files, {"0": unit.slot_state_cid})
        manifest = CheckpointManifest(self.job_id, round_, *linked, 4 * round_, self.spec.spec_hash())
        known = loss or (None, None, None)
        return CheckpointRecord(round_, self.put(manifest.to_bytes()), model, *known, [HONEST.address])

    def manifest(self, round_: int) -> CheckpointManifest:
        return CheckpointManifest.from_bytes(self.files[self.record.checkpoints[round_].cid])

    def relink(self, round_: int, **changes: Any) -> None:
        """Replace fields of a checkpoint's manifest, and the last model of the record."""
        shown = list(self.record.checkpoints)
        manifest = replace(self.manifest(round_), **changes)
        shown[round_] = replace(shown[round_], cid=self.put(manifest.to_bytes()), model_cid=manifest.model)
        self.change("record", checkpoints=shown, final_model_cid=shown[-1].model_cid)

    def leave_out_cheat(self, *, by_dispute: bool = False) -> None:
        if by_dispute:
            self.by_dispute()
        self.change("record", units=[self.record.units[0], self.record.units[2]], slashes=[])

    def leave_out_checkpoint(self) -> None:
        first, _, last = self.record.checkpoints
        self.change("record", checkpoints=[first, last])
        moved = replace(self.record.units[2], start_checkpoint_cid=first.cid)
        self.change("record", units=[*self.record.units[:2], moved])

    def settle_before(self, count: int, block: int) -> None:
        """Let earlier batches have paid this many units of the honest provider."""
        paid = [PaidUnit(OTHER_JOB, n, 0, HONEST.address, SEED, SEED, str(PRICE)) for n in range(count)]
        record = replace(self.record, batch_cid=self.put(job_record.PaidUnits(paid).to_bytes()))
        digest = to_hex(digest_of(self.put(record.to_bytes())))
        self.earlier = [(block, OTHER_JOB, replace(self.other_part, batch=9, record=digest))]

    def sampled_at(self, rate: int) -> None:
        """Draw both paid units at another rate, and drop the results if no segment is drawn."""
        changed = []
        for unit in self.record.units:
            drawn = draw_segments(from_hex(SEED), from_hex(unit.trace_root or ""), 4, rate)
            fewer = {} if drawn else {"replays": [], "leaves": []}
            given = {"sampling_bps": rate, "drawn_segments": drawn, **fewer}
            changed.append(replace(unit, **given) if unit.status == "verified" else unit)
        self.change("record", units=changed)

    def change(self, name: str, **changes: Any) -> None:
        setattr(self, name, replace(getattr(self, name), **changes))

    def hide_loss(self, round_: int) -> None:
        shown = [replace(c, validation_loss=None) if c.round == round_ else c for c in self.record.checkpoints]
        ends = {"initial_loss": shown[0].validation_loss, "final_loss": shown[-1].validation_loss}
        self.change("record", checkpoints=shown, **ends)

    def change_unit(self, **changes: Any) -> None:
        honest, *others = self.record.units
        self.change("record", units=[replace(honest, **changes), *others])

    def with_v_of_0_or_1(self) -> str:
        raw = from_hex(self.record.units[0].commitment_signature or "", 65)
        return to_hex(raw[:64] + bytes([raw[64] - 27]))

    def have_fewer_segments(self) -> None:
        self.change("record", segments=1)
        root = from_hex(self.record.units[0].trace_root or "")
        self.change_unit(drawn_segments=draw_segments(from_hex(SEED), root, 1, 2_500))

    def opened(self, job_id: str) -> Opened:
        return self.on_open

    def paid(self) -> list[PaidUnit]:
        if self.batch_units is not None:
            return self.batch_units
        other = PaidUnit(OTHER_JOB, 0, 0, CHEAT.address, SEED, SEED, str(PRICE))
        return [*(self.as_paid(unit) for unit in self.record.paid_units()), other]

    def as_paid(self, unit: UnitRecord) -> PaidUnit:
        root, payload = unit.trace_root or "", unit.payload_hash or ""
        return PaidUnit(self.job_id, unit.round, unit.slot, unit.provider, root, payload, str(PRICE))

    def settlement(self, job_id: str) -> JobSettlement:
        record = replace(self.record, batch_cid=self.put(job_record.PaidUnits(self.paid()).to_bytes()))
        part = replace(self.on_settle, record=to_hex(digest_of(self.put(record.to_bytes()))))
        return JobSettlement((part,), part.refund, part.to_round, over=True)

    settled = settlement

    def settled_with(self, part: Settled) -> list[tuple[str, Settled]]:
        return [(self.job_id, part), (OTHER_JOB, self.other_part)]

    def deposited(self, opened: Opened) -> int:
        return self.deposit

    def transfers(self, settled: Settled) -> dict[str, int]:
        return self.moved

    def batch(self, batch_id: int) -> Posted:
        [part] = self.settlement(self.job_id).parts
        lines = [
            JobLine(job, line.price, line.units, line.from_round, line.to_round, line.last, line.record)
            for job, line in self.settled_with(part)
        ]
        net = net_unit_price(PRICE, WEIGHT, FEE_BPS)
        try:
            honest = build_batch(lines, self.paid(), {self.job_id: net, OTHER_JOB: net}).root
        except job_record.RecordError:
            honest = SEED
        return replace(self.posted, root=self.posted_root or honest)

    def window(self, window_id: int) -> WindowOnChain:
        return self.on_chain

    def block_of(self, tx: str) -> int:
        return {"0xopen": 1, "0xsettle": 9}[tx]

    def penalties(self) -> list[Penalty]:
        return self.convictions

    def disputed_unit(self, evidence: str) -> UnitCommitment | None:
        return self.disputed.get(evidence)

    def dispute_outcomes(self, unit_key: str) -> set[int]:
        return {5} if self.upheld is not None and self.upheld[0] == unit_key else set()

    def staked_since(self, verifier: str) -> int | None:
        return self.staked.get(verifier)

    def was_attested(self, provider: str, block: int) -> bool:
        return False

    def lines(self) -> list[tuple[int, str, Settled]]:
        return self.earlier

    def slash(self, evidence: str, offence: str) -> Slashed:
        if self.slashed is None:
            raise ChainDisagrees("not_slashed", "no event")
        return self.slashed

    def upheld_dispute(self, dispute_id: str) -> tuple[str, str]:
        if self.upheld is None:
            raise ChainDisagrees("not_convicted", "it ended for the provider")
        return self.upheld

    def by_dispute(self) -> None:
        [slash] = self.record.slashes
        disputed = replace(slash, path="dispute", path_reason=None, evidence=job_record.dispute_id(SEED, PAYER.address))
        self.change("record", slashes=[disputed])
        self.convictions = [replace(self.convictions[0], evidence=disputed.evidence)]
        self.disputed = {disputed.evidence: self.record.units[1].commitment(self.job_id)}
        self.upheld = self.leaf(self.record.units[1]), "0xslash"

    def treasury_balance(self) -> int:
        return 1

    def address(self, contract: str) -> str:
        return {"JobEscrow": ESCROW, "Treasury": TREASURY}[contract]

    def fetch(self, cid: str, *, max_bytes: int) -> bytes:
        if cid not in self.files:
            raise BlockNotFound(cid)
        return self.files[cid]

    def download(self, cid: str, path: Path, *, max_bytes: int) -> int:
        return path.write_bytes(self.fetch(cid, max_bytes=max_bytes))

    def codes(self, loss: LossFunction | None = None) -> set[str]:
        chain: Any = self
        return {finding.code for finding in verify_job(self.job_id, chain, chain, loss).findings}
