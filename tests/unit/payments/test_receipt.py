"""Verification of receipts: none for an honest settlement, one for each falsification.

The chain and the gateway are in memory, so that each can answer falsely.
The demo's test runs the same verification against a real chain and real storage.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from eth_account import Account

from zoo_compute.audit import receipt as receipts
from zoo_compute.audit.receipt import differences, verify_job
from zoo_compute.chain.settlements import ChainDisagrees, Posted, WindowOnChain
from zoo_compute.content.blockstore import BlockNotFound
from zoo_protocol import merkle
from zoo_protocol.content.cid import cid_of_raw, digest_of
from zoo_protocol.hashing import canonical_json, from_hex, keccak, sha256, to_hex
from zoo_protocol.messages import Domain, JobOrder, UnitCommitment, sign, struct_hash, typed_data
from zoo_protocol.payments import job_record
from zoo_protocol.payments import receipt as settled_receipt
from zoo_protocol.payments.job_record import CheckpointRecord, JobRecord, PaidUnit, SlashRecord, UnitRecord
from zoo_protocol.payments.receipt import JobSettlement, Opened, Settled, Slashed, net_unit_price, unit_price
from zoo_protocol.payments.settlement_batch import JobLine, build_batch
from zoo_protocol.verification import trace
from zoo_protocol.verification.sampling import draw_segments

ESCROW, TREASURY = Account.create().address, Account.create().address
PAYER, HONEST, CHEAT = Account.create(), Account.create(), Account.create()
OTHER_JOB = to_hex(sha256(b"another job"))
DOMAIN = Domain(31337, ESCROW)
PRICE, WEIGHT, BUDGET, FEE_BPS = 25 * 10**17, 3_870_000, 10**18, 500
SEED = to_hex(sha256(b"seed"))
ENVIRONMENT = to_hex(sha256(b"class"))


class World:
    chain_id = 31337

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        dataset = self.put(canonical_json({"validation": {"cid": self.put(b"held-out text")}}))
        spec = canonical_json({"data_config": {"dataset": dataset}, "training_config": {"rounds": 2}})
        spec_hash = to_hex(keccak(spec))
        self.order = JobOrder(PAYER.address, spec_hash, 1, 2, WEIGHT, 4, 200, BUDGET, PRICE, 2_000_000_000, 7)
        self.job_id = struct_hash(self.order)
        units = [self.unit(0, HONEST, "verified"), self.unit(1, CHEAT, "rejected")]
        leaves = [self.leaf(unit) for unit in units]
        root = to_hex(merkle.root([from_hex(leaf) for leaf in leaves]))
        evidence = self.put(b"evidence")
        known = {0: "5.500000", 1: None, 2: "3.000000"}  # one loss was missing when the record was written
        checkpoints = [self.checkpoint(round_, loss) for round_, loss in known.items()]
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
            initial_loss="5.500000",
            final_loss="3.000000",
            final_model_cid=checkpoints[-1].model_cid,
            times={},
            batch_cid=None,
        )
        gross = unit_price(PRICE, WEIGHT)
        net = net_unit_price(PRICE, WEIGHT, FEE_BPS)
        self.on_open = Opened(PAYER.address, 1, 2, WEIGHT, BUDGET, PRICE, FEE_BPS, self.order.specHash, "0xopen")
        self.on_settle = Settled(1, PRICE, 1, 0, 1, net, gross - net, BUDGET - gross, True, "", "0xsettle")
        self.other_part = replace(self.on_settle, refund=0, last=False, record=SEED)
        self.posted = Posted("", 2 * net, 2 * (gross - net), {HONEST.address: net}, {}, 2 * (gross - net))
        self.batch_units: list[PaidUnit] | None = None
        self.posted_root: str | None = None
        self.deposit = BUDGET
        self.moved = {PAYER.address: BUDGET - gross}
        self.on_chain = WindowOnChain(root, 2, SEED)
        self.slashed: Slashed | None = Slashed(CHEAT.address, "incorrect_computation", 500, "0xslash")
        self.upheld: tuple[str, str] | None = None

    def put(self, data: bytes) -> str:
        self.files[cid_of_raw(data)] = data
        return cid_of_raw(data)

    def unit(self, slot: int, provider: Any, status: str) -> UnitRecord:
        payload, salt = f"payload {slot}".encode(), sha256(f"salt {slot}".encode())
        root = to_hex(sha256(f"trace {slot}".encode()))
        bound = to_hex(trace.payload_hash(sha256(payload), provider.address, salt))
        commitment = UnitCommitment(self.job_id, 0, slot, provider.address, root, bound)
        return UnitRecord(
            round=0,
            slot=slot,
            provider=provider.address,
            status=status,
            reason=None,
            start_checkpoint_cid=self.checkpoint(0, None).cid,
            start_slot_state_cid=None,
            start_restored_payload_cid=None,
            start_eager_payload_cid=None,
            top_k=64,
            trace_root=root,
            payload_hash=bound,
            payload_cid=self.put(payload),
            salt=to_hex(salt),
            slot_state_cid=cid_of_raw(f"slot state {slot}".encode()),  # it stays on its node
            commitment_signature=sign(to_hex(bytes(provider.key)), typed_data(DOMAIN, commitment)),
            window=3,
            window_index=None,
            sampling_bps=2_500,
            drawn_segments=draw_segments(from_hex(SEED), from_hex(root), 4, 2_500),
            tolerated_segments=[],
        )

    def leaf(self, unit: UnitRecord) -> str:
        assert unit.trace_root is not None
        assert unit.payload_hash is not None
        place = self.job_id, 0, unit.slot, unit.provider
        return to_hex(job_record.unit_leaf(*place, unit.trace_root, unit.payload_hash))

    def checkpoint(self, round_: int, loss: str | None) -> CheckpointRecord:
        model = self.put(f"model {round_}".encode())
        manifest = self.put(canonical_json({"round": round_, "model": model}))
        return CheckpointRecord(round_, manifest, model, loss, [HONEST.address])

    def change(self, name: str, **changes: Any) -> None:
        setattr(self, name, replace(getattr(self, name), **changes))

    def hide_loss(self, round_: int) -> None:
        shown = [replace(c, validation_loss=None) if c.round == round_ else c for c in self.record.checkpoints]
        ends = {"initial_loss": shown[0].validation_loss, "final_loss": shown[-1].validation_loss}
        self.change("record", checkpoints=shown, **ends)

    def change_unit(self, **changes: Any) -> None:
        honest, cheat = self.record.units
        self.change("record", units=[replace(honest, **changes), cheat])

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
        self.upheld = self.leaf(self.record.units[1]), "0xslash"

    def treasury_balance(self) -> int:
        return 1

    def address(self, contract: str) -> str:
        return {"JobEscrow": ESCROW, "Treasury": TREASURY}[contract]

    def fetch(self, cid: str, *, max_bytes: int) -> bytes:
        if cid not in self.files:
            raise BlockNotFound(cid)
        return self.files[cid]

    def codes(self, loss: receipts.LossFunction | None = None) -> set[str]:
        chain: Any = self
        return {finding.code for finding in verify_job(self.job_id, chain, chain, loss).findings}


def balanced(receipt: dict[str, Any]) -> tuple[int, int]:
    """Return pay and fee of a receipt that balances and pays only its first unit."""
    paid, fee, refund, escrowed = (int(receipt[f"{name}_wei"]) for name in ("paid", "fee", "refund", "escrowed"))
    assert paid + fee + refund == escrowed
    assert [unit["paid_wei"] for unit in receipt["units"]] == [str(paid), "0"]
    return paid, fee


def test_honest_settlement_has_no_finding_and_balances() -> None:
    world: Any = World()
    found = verify_job(world.job_id, world, world, lambda _spec, model, _text: 5.5 if model == b"model 0" else 3.0)
    assert found.findings == []
    paid, fee = balanced(found.receipt)
    assert fee == (paid + fee) * FEE_BPS // 10_000
    verified = found.receipt["units"][0]
    assert (verified["sampling_bps"], len(verified["drawn_segments"])) == (2_500, 1)
    assert verified["detection_probability"] == 0.25  # one of four segments


def test_unit_forfeited_after_batch_is_unpaid_and_balances() -> None:
    world: Any = World()
    paid = world.settlement(world.job_id)
    other, its_own = (("UnitStruck", {"unitId": key}, "0x") for key in (SEED, world.leaf(world.record.units[0])))
    for events, is_paid in (([], True), ([other], True), ([other, its_own], False)):
        forfeited = JobSettlement.from_events(events).struck
        found = settled_receipt.build_receipt(world.record, world.on_open, replace(paid, struck=forfeited), [], 0)
        assert [amount > 0 for amount in balanced(found)] == [is_paid, is_paid]


def test_committee_penalty_matches_upheld_dispute() -> None:
    world: Any = World()
    assert world.codes() == set()
    world.by_dispute()
    found = verify_job(world.job_id, world, world)
    assert found.findings == []
    assert [(slash["path"], slash["path_reason"]) for slash in found.receipt["slashes"]] == [("dispute", None)]
    key, tx = world.upheld
    for upheld, code in ((None, "not_convicted"), ((SEED, tx), "wrong_dispute"), ((key, SEED), "wrong_dispute")):
        world.upheld = upheld
        assert world.codes() == {code}


FORGED: list[tuple[str, Callable[[World], None]]] = [
    ("wrong_payment", lambda w: w.change_unit(status="rejected")),
    ("wrong_payment", lambda w: w.change("posted", claimed={CHEAT.address: 1})),
    ("wrong_batch", lambda w: setattr(w, "posted_root", SEED)),
    ("wrong_batch", lambda w: setattr(w, "batch_units", [w.as_paid(w.record.units[1]), w.paid()[1]])),
    ("wrong_batch", lambda w: setattr(w, "batch_units", w.paid()[:1])),
    ("wrong_batch", lambda w: w.change("other_part", paid=w.other_part.paid - 1)),
    ("wrong_batch", lambda w: w.change("posted", net=w.posted.net + 1)),
    ("wrong_batch", lambda w: w.change_unit(status="rejected")),
    ("wrong_units", lambda w: w.change("on_settle", units=2)),
    ("wrong_fee", lambda w: w.change("posted", fee_collected=w.posted.fee + 1)),
    ("sampled_too_little", lambda w: w.change_unit(sampling_bps=199)),
    ("bad_record", lambda w: w.change_unit(sampling_bps=10_001)),
    ("bad_record", lambda w: w.change("record", segments=0)),
    ("bad_record", lambda w: w.change("record", segments=2**16)),
    ("bad_record", lambda w: w.change("record", order={})),
    ("wrong_segments", lambda w: w.have_fewer_segments()),
    ("paid_twice", lambda w: w.change("record", units=[w.record.units[0]] * 2)),
    ("no_commitment", lambda w: w.change_unit(salt=None)),
    ("wrong_start", lambda w: w.change_unit(start_checkpoint_cid=w.record.checkpoints[1].cid)),
    ("wrong_loss", lambda w: w.change("record", checkpoints=[])),
    ("wrong_evidence", lambda w: w.change("record", slashes=[replace(w.record.slashes[0], evidence_cid="none")])),
    ("wrong_fee", lambda w: w.change("on_settle", fee=w.on_settle.fee - 1)),
    ("wrong_refund", lambda w: w.change("on_settle", refund=w.on_settle.refund + 1)),
    ("wrong_transfers", lambda w: w.change("other_part", refund=1)),
    ("wrong_transfers", lambda w: w.moved.update({TREASURY: 1})),
    ("wrong_deposit", lambda w: setattr(w, "deposit", BUDGET - 1)),
    ("wrong_price", lambda w: w.change("on_settle", price=PRICE - 10**15)),
    ("price_above_maximum", lambda w: w.change("on_open", max_price=PRICE - 1)),
    ("wrong_order", lambda w: w.record.order.update(budget=str(2 * BUDGET))),
    ("foreign_signature", lambda w: w.change("on_open", payer=CHEAT.address)),
    ("foreign_signature", lambda w: w.change_unit(commitment_signature=w.record.units[1].commitment_signature)),
    ("foreign_signature", lambda w: w.change_unit(commitment_signature=w.with_v_of_0_or_1())),
    ("no_commitment", lambda w: w.change_unit(commitment_signature=None)),
    ("wrong_payload", lambda w: w.change_unit(salt=SEED)),
    ("wrong_window", lambda w: w.change("on_chain", root=SEED)),
    ("not_in_window", lambda w: w.change_unit(window_index=1)),
    ("paid_unverified", lambda w: w.change("on_chain", seed=None)),
    ("wrong_draw", lambda w: w.change_unit(drawn_segments=[])),
    ("wrong_tolerated", lambda w: w.change_unit(tolerated_segments=[9])),
    ("not_slashed", lambda w: setattr(w, "slashed", None)),
    ("wrong_slash", lambda w: w.change("slashed", provider=HONEST.address)),
    ("unresolvable", lambda w: w.files.pop(w.record.checkpoints[1].cid) and None),
    ("wrong_loss", lambda w: w.change("record", final_loss="1.000000")),
    ("wrong_loss", lambda w: w.hide_loss(0)),
    ("wrong_loss", lambda w: w.hide_loss(2)),
    ("wrong_model", lambda w: w.change("record", final_model_cid="other")),
]


@pytest.mark.parametrize(("code", "forge"), FORGED, ids=[f"{i}-{code}" for i, (code, _) in enumerate(FORGED)])
def test_every_falsification_is_found(code: str, forge: Callable[[World], None]) -> None:
    world = World()
    forge(world)
    assert code in world.codes()


def test_wrong_loss_is_found() -> None:
    assert "wrong_loss" in World().codes(lambda _spec, _model, _text: 4.2)


def test_presented_receipt_is_compared_key_by_key() -> None:
    world: Any = World()
    recomputed = verify_job(world.job_id, world, world).receipt
    claimed = json.loads(json.dumps(recomputed)) | {"ledger_reconciled": True, "treasury_balance_wei": "5"}
    assert differences(claimed, recomputed) == []
    claimed["paid_wei"] = "0"
    assert [finding.where for finding in differences(claimed, recomputed)] == ["paid_wei"]
