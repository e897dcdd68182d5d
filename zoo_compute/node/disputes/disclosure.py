"""Disclosure of a disputed segment's start state to its committee.

Missing data counts against the provider. Boundary states are kept for a limited time. The unit's inputs are kept for as
long as it can be disputed, and retraining from them gives the same states.
"""

import logging
from dataclasses import dataclass, field

from zoo_compute.base.errors import ZooError
from zoo_compute.chain.disputes import DisputePhase
from zoo_compute.content.gateway import GatewayClient
from zoo_compute.node.disk.traces import TraceLost, Traces
from zoo_compute.node.disk.workspace import Workspace
from zoo_compute.node.disputes.defence import Disputes
from zoo_compute.node.execution.executor import Executor
from zoo_compute.node.market.calls import Market
from zoo_compute.node.work.states import STATE_ERRORS, StateUnavailable, state_file
from zoo_compute.node.work.uploads import upload_disputed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Disclosure:
    """A provider's duties towards committees, in a thread: retraining is slow.

    ``disputes`` is another instance than the one of the defence; both read the same files.
    """

    disputes: Disputes
    workspace: Workspace
    market: Market
    gateway: GatewayClient
    executor: Executor
    logged: dict[str, str] = field(default_factory=dict)

    def watch(self) -> None:
        """Upload the start state of every disputed segment that a committee can request.

        Errors are logged; the next run tries again.

        Raises:
            Unreachable: the chain does not answer; try again later.
        """
        for dispute_id, unit_id in self.disputes.open_disputes():
            state = self.disputes.chain.dispute(dispute_id)
            if (
                state.phase not in (DisputePhase.DRAWING, DisputePhase.JUDGING)
                or state.convicted
                or self.logged.get(dispute_id) == ""
            ):
                continue
            try:
                self._disclose(dispute_id, unit_id, state.step)
                self._log_once(dispute_id, "")
            except (ZooError, TraceLost, *STATE_ERRORS, OSError) as error:
                self._log_once(dispute_id, str(error))

    def _disclose(self, dispute_id: str, unit_id: str, step: int) -> None:
        known = self.market.dispute(dispute_id)
        if known["step"] != step:
            raise StateUnavailable("the market has not indexed the selected segment yet")
        if known["state_cid"] is not None:
            return  # reported before a restart
        trace = Traces(self.workspace.traces).find(unit_id)
        task = trace.task
        if task is None:
            raise StateUnavailable("the unit's inputs are not recorded: an earlier version of this program trained it")
        if (cid := task["slot_state_cid"]) is not None:
            own = self.workspace.slot_state(task["job_id"], task["slot"], cid)
            if own.exists():  # otherwise it was fetched, so it is public
                upload_disputed(self.market, dispute_id, own)
        if step == 0:
            log.info("start_disclosed dispute=%s", dispute_id)
            return
        file = state_file(trace, step, self.workspace, self.gateway, self.executor.run)
        cid = upload_disputed(self.market, dispute_id, file)
        self.market.report_state(dispute_id, cid)
        log.info("state_disclosed dispute=%s segments=%d cid=%s", dispute_id, step, cid)

    def _log_once(self, dispute_id: str, problem: str) -> None:
        if problem and self.logged.get(dispute_id) != problem:
            log.warning("state_not_disclosed dispute=%s problem=%s", dispute_id, problem)
        self.logged[dispute_id] = problem
