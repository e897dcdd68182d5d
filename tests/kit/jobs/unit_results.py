"""Units delivered without training: random payloads under real commitments."""

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import SecretStr

from market.chain.transactions.signer import Signer
from market.training.checkpoints.service import load_parameters
from market.training.commitments.schemas import AcknowledgementView
from market.training.commitments.service import Acknowledger
from market.training.deliveries import service as deliveries
from market.training.leases import probes
from market.training.leases.schemas import CommitTraining, CompleteTraining, LeaseView
from training_gym.compress.payload_format import encode
from training_gym.exchange.deadlines import start_slot_state
from training_gym.exchange.early_start import start_parameters
from training_gym.model.tensors import tensor_digest
from training_gym.spec.config import TrainingSpec
from training_gym.units import trace as trace_of_unit
from training_gym.units.replica_state import fresh_slot_state, save_slot_state
from training_gym.units.trace import boundary_leaf
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import sha256, to_hex
from zoo_protocol.messages import Domain, UnitCommitment, omissions_domain, sign, typed_data
from zoo_protocol.verification import trace

if TYPE_CHECKING:
    from kit.jobs.jobs_fixtures import World

DOMAIN = Domain(31337, "0x" + "11" * 20)
ACKNOWLEDGER = Acknowledger(
    Signer(SecretStr("0x" + "22" * 32)), omissions_domain(31337, "0x" + "12" * 20), inclusion_deadline_seconds=3600
)


class Work:
    """One node's answer to one train lease; ``changes`` override fields of the completion."""

    def __init__(self, world: "World", lease: LeaseView, node: str, **changes: Any) -> None:
        self.world, self.lease, self.node, self.changes = world, lease, node, changes
        self.wants_probe = lease.task["probe"]
        self.declares = True  # the start of the replica's next unit, if the job has a round delay
        self.spec = TrainingSpec.from_dict(lease.task["spec"])
        size = self.spec.num_parameters()  # honest payloads share a direction
        common, place = np.random.default_rng(7).normal(size=size), (lease.task["round"], lease.task["slot"])
        own = np.random.default_rng(place).normal(size=size)
        own += 1e-3 * np.random.default_rng().normal(size=size)  # hardly changes a loss, but every file
        self.vector = (common + own).astype(np.float32) * np.float32(7e-4)
        self.slot_state = replace(fresh_slot_state(self.spec), error_feedback=self.vector, steps=4)
        self.slot_state_cid = world.keep(node, save_slot_state(self.slot_state))
        unit = self.unit()
        self.parameters_digest = tensor_digest(unit.checkpoint)
        self.leaves = [secrets.token_bytes(32) for _ in range(self.spec.segments + 1)]
        self.leaves[0] = boundary_leaf(unit.place, 0, self.parameters_digest, unit.slot_state.digest())
        self.hand_in(encode(self.spec, self.vector))
        self.salt = secrets.token_bytes(32)

    def hand_in(self, payload: bytes) -> None:
        """Make ``payload`` the one that the last leaf commits to."""
        self.payload, state = payload, self.slot_state.digest()
        self.world.keep(self.node, payload)
        last = self.spec.segments
        evaluation = (self.changes.get("evaluation") or "").encode()
        self.leaves[-1] = boundary_leaf(self.unit().place, last, self.parameters_digest, state, payload, evaluation)

    def unit(self) -> trace_of_unit.Unit:
        task, storage = self.lease.task, self.world.storage
        payload, eager = task["restored_payload_cid"], task["eager_payload_cid"]
        return trace_of_unit.Unit(
            spec=self.spec,
            job_id=task["job_id"],
            round=task["round"],
            slot=task["slot"],
            checkpoint=start_parameters(
                self.spec,
                load_parameters(storage, self.spec, task["checkpoint_cid"]),
                self.world.own_file(self.node, eager),
            ),
            train=np.zeros(0, np.uint8),
            slot_state=start_slot_state(
                self.spec,
                self.world.own_file(self.node, task["slot_state_cid"]),
                None if payload is None else storage.get(payload, max_bytes=2**24),
            ),
            environment=task["environment"],
        )

    def commitment(self, domain: Domain = DOMAIN) -> CommitTraining:
        root = to_hex(trace.trace_root(self.leaves))
        payload_hash = to_hex(trace.payload_hash(sha256(self.payload), self.node, self.salt))
        task = self.lease.task
        message = UnitCommitment(task["job_id"], task["round"], task["slot"], self.node, root, payload_hash)
        key = to_hex(bytes(self.world.wallets[self.node].key))
        declared = {
            "payload_cid": str(cid_of_file(self.payload)),
            "slot_state_cid": self.slot_state_cid,
            "slot_state_digest": to_hex(self.slot_state.digest()),
        }
        return CommitTraining(
            token=self.lease.token,
            trace_root=root,
            payload_hash=payload_hash,
            commitment_signature=sign(key, typed_data(domain, message)),
            **(declared if self.spec.training.round_delay and self.declares else {}),
        )

    def report_probe(self, digest: str = "0x" + "70" * 32) -> None:
        held, self.wants_probe = (self.lease.id, self.node, self.lease.token), False
        self.world.call(probes.record_probe, *held, digest, self.lease.lease_seconds)

    def commit(self, commitment: CommitTraining | None = None) -> AcknowledgementView:
        if self.wants_probe:
            self.report_probe()
        given = commitment or self.commitment()
        answer = self.world.call(
            deliveries.commit, self.world.network, DOMAIN, ACKNOWLEDGER, self.lease.id, self.node, given
        )
        assert answer is not None
        return answer

    def deliver(self) -> None:
        """Commit the unit and complete its upload."""
        self.commit()
        self.complete()

    def completion(self) -> CompleteTraining:
        fields = {
            "token": self.lease.token,
            "payload_cid": self.world.storage.put(self.payload, max_bytes=2**24).cid,
            "payload_sha256": to_hex(sha256(self.payload)),
            "salt": to_hex(self.salt),
            "slot_state_cid": self.slot_state_cid,
            "slot_state_digest": to_hex(self.slot_state.digest()),
            "leaves": [to_hex(leaf) for leaf in self.leaves],
            "end_parameters_digest": to_hex(self.parameters_digest),
            "train_loss": "5.5",
            "steps": 4,
        }
        return CompleteTraining.model_validate(fields | self.changes)

    def complete(self) -> None:
        self.world.complete(self.lease, self.node, self.completion())
