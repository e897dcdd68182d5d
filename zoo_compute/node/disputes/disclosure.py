"""Making a disputed step's start state available to its committee: what nobody can have is judged against its provider.

States are large, so they are kept for a while only. What a unit started from is kept for as long as it can be
disputed: with that the unit is trained again, bit by bit, and the state is there again.
"""

import logging
from dataclasses import dataclass, field
from typing import Any

from training_gym.spec.errors import GymError
from zoo_compute.base.errors import ZooError
from zoo_compute.chain.disputes import Turn
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient, GatewayUnavailable
from zoo_compute.node.disk.traces import TraceLost, Traces
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.defence import Disputes
from zoo_compute.node.execution.executor import Executor, ExecutorError
from zoo_compute.node.market.calls import Market
from zoo_compute.node.work.inputs import SlotStateMissing
from zoo_compute.node.work.states import StateUnavailable, state_file
from zoo_compute.node.work.uploads import upload_disputed
from zoo_compute.node.work.worker import TASK_TIMEOUT_SECONDS
from zoo_protocol.content.cid import ContentError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What a provider does for the committees of its disputes. It has a thread of its own: a unit takes its time.

    ``disputes`` is not the one that another thread watches; both read the same files.
    """

    disputes: Disputes
    workspace: Workspace
    market: Market
    gateway: GatewayClient
    executor: Executor
    told: dict[str, str] = field(default_factory=dict)

    def watch(self) -> None:
        """See to it that the state of each step that a committee may be asked about can be had.

        What fails is logged and tried again at the next look.

        Raises:
            Unreachable: the chain does not answer; try again later.
        """
        for dispute_id, unit_id in self.disputes.noted():
            state = self.disputes.chain.dispute(dispute_id)
            if state.turn not in (Turn.DRAWING, Turn.JUDGING) or state.convicted or self.told.get(dispute_id) == "":
                continue
            try:
                self._disclose(dispute_id, unit_id, state.step)
                self._tell(dispute_id, "")
            except (
                ZooError,
                TraceLost,
                StateUnavailable,
                ExecutorError,
                GymError,
                ContentError,
                BlockNotFound,
                GatewayUnavailable,
                SlotStateMissing,
                OSError,
            ) as error:
                self._tell(dispute_id, str(error))

    def _disclose(self, dispute_id: str, unit_id: str, step: int) -> None:
        known = self.market.dispute(dispute_id)
        if known["step"] != step:
            raise StateUnavailable("the market does not know yet which step is named")
        if known["state_cid"] is not None:
            return  # told before a restart
        trace = Traces(self.workspace.traces).find(unit_id)
        task = trace.task
        if task is None:
            raise StateUnavailable(
                "what the unit started from was not kept: an earlier version of this program trained it"
            )
        if (cid := task["slot_state_cid"]) is not None:
            own = self.workspace.slot_state(task["job_id"], task["slot"], cid)
            if own.exists():  # else it is public: another node's, which was fetched
                upload_disputed(self.market, dispute_id, own)
        if step == 0:
            log.info("dispute %s: what its unit starts from is on storage", dispute_id)
            return
        cid = upload_disputed(self.market, dispute_id, state_file(trace, step, self.workspace, self.gateway, self._run))
        self.market.tell_state(dispute_id, cid)
        log.info("dispute %s: the state after %d segments is on storage as %s", dispute_id, step, cid)

    def _run(self, task: dict[str, Any]) -> dict[str, Any]:
        return self.executor.run(task, TASK_TIMEOUT_SECONDS)

    def _tell(self, dispute_id: str, problem: str) -> None:
        """Log once why the state cannot be had yet; an empty ``problem``: it can."""
        if problem and self.told.get(dispute_id) != problem:
            log.warning("dispute %s: its committee cannot have the state yet: %s", dispute_id, problem)
        self.told[dispute_id] = problem
