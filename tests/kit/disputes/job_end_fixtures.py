"""The market with its committee, to the end of jobs: settlement, payouts and refunds."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from kit.chain.deployed_chain import Wallet
from kit.disputes.adjudication_fixtures import QuorumWorld
from kit.disputes.dispute_fixtures import ZEN
from kit.payments.settlement_helpers import claim_all
from kit.verification.live_fixtures import TRAINING, LiveMaker, Node
from market.domain.lifecycle import JobStatus
from market.domain.network import DEVNET
from market.jobs import service as jobs
from market.jobs.models import Job
from market.payments.settlement import service as settlement
from market.platform.db.base import utc_now
from market.training.leases import service as leases
from market.training.leases.schemas import LeaseKind
from zoo_compute.node.disputes.referee import Referee
from zoo_protocol.payments.receipt import net_unit_price

PRICE = 5 * ZEN // 2


class EndingsWorld(QuorumWorld):
    """A market whose jobs are in escrow."""

    listed: Sequence[Referee] = ()

    def job_of(self, nodes: Sequence[Node], *, validation_samples: int = 0, **training: Any) -> str:
        """Start an escrowed job of these nodes in which every segment is sampled."""
        with self.database.transaction() as session:
            for node in nodes:
                leases.remove_node_from_jobs(session, node.address, "a test")
        document = self.spec.to_dict() | {"training_config": TRAINING | training}
        document["data_config"]["validation_samples"] = validation_samples
        job_id = self.job(
            nodes=len(nodes), redundancy=1, wait_seconds=30 * 86_400, sampling_bps=10_000, document=document
        )
        order = self.call(jobs.get, job_id).order
        self.open_in_escrow(order)
        self.place_on(job_id, nodes)
        return job_id

    def train_all(self, job_id: str, *nodes: Node) -> None:
        for node in [*nodes, *nodes]:
            self.work_off(node, LeaseKind.TRAIN)
            self.dispatch(job_id)

    def settle_job(self, job_id: str) -> Job:
        """Settle a job of decided units with finality; a second run changes nothing."""
        self.execute(update(Job).where(Job.id == job_id).values(trained_at=utc_now() - timedelta(days=1)))
        for _ in range(2):
            self.dispatch(job_id)
            settlement.settle(self.database, self.storage, DEVNET, self.settings, utc_now())
            self.follow()
        job = self.read(job_id)
        assert job.status == JobStatus.SETTLED, (job.status, job.reason)
        return job

    def claim(self, wallet: Wallet | Node) -> int:
        self.pass_time(DEVNET.challenge_seconds + 1)
        gain = claim_all(self, wallet)
        self.follow()
        return gain

    def unit_pay(self, job: Job) -> int:
        return net_unit_price(PRICE, job.unit_weight_us, job.fee_bps or 0)

    def check_paid(self, job_id: str) -> Job:
        """Check that verified units are paid once and the payer has the rest."""
        job = self.read(job_id)
        verified = sum(unit.status == "verified" for unit in self.units(job_id))
        assert (job.paid_wei or 0) == verified * self.unit_pay(job)
        assert (job.paid_wei or 0) + (job.fee_wei or 0) + (job.refund_wei or 0) == job.budget_wei
        assert self.deployed.views.balance_of(job.payer) == job.refund_wei
        self.check_books()
        return job


@pytest.fixture(name="live")
def world_of_endings(live_of: LiveMaker) -> EndingsWorld:
    world: EndingsWorld = live_of(EndingsWorld)
    return world
