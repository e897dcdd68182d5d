"""Rounds of a job, recomputed: links of checkpoints, starts of units, joins of payloads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from training_gym.aggregate.aggregation import Aggregate, aggregate
from training_gym.aggregate.outer_step import OuterState, initial_outer_state, load_outer_state, save_outer_state
from training_gym.aggregate.robust import WEIGHT_ONE
from training_gym.compress.link_adaptation import top_k_levels
from training_gym.compress.payload_format import top_k_of
from training_gym.exchange.deadlines import MAX_STALENESS, quorum, staleness_weight
from training_gym.model.folder import load_files
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import GymError, PayloadError
from training_gym.units.checkpoint import CheckpointManifest, initial_checkpoint, load_state, save_state
from zoo_compute.audit.payload_lists import units_left_out
from zoo_compute.audit.rollbacks import RollbackChecks
from zoo_compute.audit.settlements import Expect
from zoo_compute.base.errors import Finding
from zoo_compute.content.base_models import BaseFiles
from zoo_compute.content.gateway import UNAVAILABLE, GatewayClient
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.payments.job_record import (
    MAX_ROLLBACKS,
    ROLLED_BACK,
    AggregationRecord,
    JobRecord,
    PlacedPayload,
    UnitRecord,
)
from zoo_protocol.payments.receipt import Settled
from zoo_protocol.verification.training_faults import FINAL_LOSS, STEP_NOT_FINITE, Rollback

Fetch = Callable[[str | None, str | None], bytes | None]
"""(where, CID) -> bytes; None if they are not available, and a finding if ``where`` is given."""


@dataclass(frozen=True, slots=True)
class JoinedRound:
    """Differences of a round that was joined again, and its rollback, if any."""

    findings: Sequence[Finding]
    rollback: Rollback | None = None


class Rounds:
    """Checks of a record's checkpoints and starts; each adds its findings.

    The record of a job that ``is_running`` has only its settled units.
    """

    def __init__(
        self,
        expect: Expect,
        fetch: Fetch,
        record: JobRecord,
        spec: TrainingSpec,
        gateway: GatewayClient,
        *,
        is_running: bool = False,
    ) -> None:
        self._expect, self._fetch, self._record, self._spec = expect, fetch, record, spec
        self._gateway, self._is_running = gateway, is_running
        self._manifests: list[CheckpointManifest] = []
        self._aggregations: list[AggregationRecord] = []
        self._state: tuple[int, OuterState] | None = None  # of the last join, by the round that it starts
        self._keeps_replaced = False
        self.replaced: bytes | None = None
        """Final model that a joined last round gives, if an earlier one was delivered for its loss."""

    def links(self) -> bool:
        """Check that manifests and aggregation records lead from the first to the final model."""
        listed = [checkpoint.round for checkpoint in self._record.checkpoints]
        count = self._spec.training.rounds + 1 if self._record.outcome == "completed" else len(listed)
        self._expect("checkpoint_left_out", "checkpoints", list(range(count)), listed)
        if listed != list(range(count)):
            return False
        parent: str | None = None
        for checkpoint in self._record.checkpoints:
            where = f"checkpoints[{checkpoint.round}]"
            content = self._fetch(f"{where}.cid", checkpoint.cid)
            try:
                manifest = CheckpointManifest.from_bytes(content or b"")
                made = (self._fetch(f"{where}.aggregation", manifest.aggregation) or b"") if checkpoint.round else None
                aggregation = None if made is None else AggregationRecord.from_bytes(made)
            except ValueError as error:
                self._expect("wrong_manifest", where, "a checkpoint of this job", str(error))
                return False
            found = manifest.job_id, manifest.round, manifest.spec_hash, manifest.model, manifest.parent
            spec_hash = self._spec.spec_hash()
            links = self._record.job_id, checkpoint.round, spec_hash, checkpoint.model_cid, parent
            self._expect("wrong_manifest", where, links, found)
            self._manifests.append(manifest)
            if aggregation is None:
                self._expect("wrong_manifest", f"{where}.aggregation", None, manifest.aggregation)
            else:
                self._aggregation(aggregation, checkpoint.round - 1, parent, where)
            parent = checkpoint.cid
        return True

    def _aggregation(self, found: AggregationRecord, round_: int, parent: str | None, where: str) -> None:
        links = found.job_id, found.round, found.checkpoint, found.weight_one
        self._expect("wrong_aggregation", where, (self._record.job_id, round_, parent, WEIGHT_ONE), links)
        delivered = {(unit.round, unit.slot, unit.payload_cid) for unit in self._usable_units(round_)}
        nodes = self._nodes()
        late = [staleness_weight(rounds) for rounds in range(1, MAX_STALENESS + 1)]
        places = [one.place for one in found.payloads]
        self._expect("wrong_aggregation", f"{where}.payloads", sorted(set(places)), sorted(places))
        for one in found.payloads:
            age = round_ - one.round
            placed = one.place == one.slot + age * nodes and one.weight in ([WEIGHT_ONE] if age == 0 else late)
            known = (one.round, one.slot, one.payload) in delivered or self._is_unsettled(one)
            self._expect("wrong_aggregation", f"{where}.payloads[{one.place}]", (True, True), (placed, known))
        starts = {unit.start_checkpoint_cid for unit in self._record.units if unit.round == round_}
        if found.payloads and found.rolled_back_to is None and starts - self._starts(round_):
            is_quorum = len(found.payloads) >= quorum(nodes)
            self._expect("wrong_aggregation", f"{where}.payloads", True, is_quorum)
        went_back = found.rolled_back_to is not None, found.rollback_reason is not None
        self._expect("wrong_rollback", f"rounds[{round_}].rollback_reason", *went_back)
        self._aggregations.append(found)

    @cached_property
    def _places(self) -> set[tuple[int, int]]:
        return {(unit.round, unit.slot) for unit in self._record.units}

    def _is_unsettled(self, payload: PlacedPayload) -> bool:
        """Return True if the payload's unit may be one that a settlement has yet to name."""
        # The market gives a unit to another node only while its round is open. A settled unit is therefore the only
        # one of its round and slot whose payload a round can have.
        return self._is_running and payload.slot < self._nodes() and (payload.round, payload.slot) not in self._places

    def unsettled(self, round_: int) -> list[str]:
        """Return ``ROUND:SLOT`` of each unit without a settlement whose payload entered a round."""
        done = self._aggregations[round_]
        entered = done.payloads if done.rolled_back_to is None else []
        return [f"{one.round}:{one.slot}" for one in entered if self._is_unsettled(one)]

    def rollback(self, round_: int) -> Rollback | None:
        """Return the rollback that a round's record states, if any."""
        to, reason = self._aggregations[round_].rolled_back_to, self._aggregations[round_].rollback_reason
        return None if to is None or reason is None else Rollback(to, reason)

    def left_out(self) -> list[tuple[UnitRecord, int]]:
        """Return the verified units whose payload no round lists, each with a round that had to."""
        return units_left_out(self._record, self._aggregations, self._starts, self._spec.training.round_delay)

    def _usable_units(self, number: int) -> list[UnitRecord]:
        """Return the units that rounds from checkpoint ``number`` on may use."""
        starts = self._starts(number)
        return [unit for unit in self._record.units if unit.status != "lost" and unit.start_checkpoint_cid in starts]

    def _starts(self, number: int) -> set[str]:
        """Return the CIDs of checkpoints since the last rollback that checkpoint ``number`` follows."""
        went_back = [one.round + 1 for one in self._aggregations if one.rolled_back_to is not None]
        since = max((one for one in went_back if one <= number), default=0)
        return {one.cid for one in self._record.checkpoints[since:]}

    def rollbacks(self, lines: Sequence[Settled] = ()) -> dict[int, Rollback]:
        """Return the rollbacks by the round of their checkpoint, and check reasons and targets.

        Args:
            lines: the job's settlements before the last one.
        """
        stated = {round_ + 1: self.rollback(round_) for round_ in range(len(self._aggregations))}
        found = {number: one for number, one in stated.items() if one is not None}
        checks = RollbackChecks(self._expect, self._record, self._spec, self._nodes(), self._gateway)
        checks.check(found, lines)
        return found

    def _nodes(self) -> int:
        return int(self._record.order["units"]) // self._spec.training.rounds

    def start(self, unit: UnitRecord, payload: bytes | None, where: str) -> None:
        """Check that a verified unit starts from what earlier units and the checkpoint give."""
        number = [checkpoint.cid for checkpoint in self._record.checkpoints].index(unit.start_checkpoint_cid)
        usable = self._usable_units(number)
        earlier = [one for one in usable if one.slot == unit.slot and one.round < unit.round]
        made = {one.slot_state_cid: one.round for one in earlier}
        named = self._manifests[number].slot_states.get(str(unit.slot))
        states = [cid for cid, round_ in made.items() if round_ >= made.get(named, -1)]
        included = {one.payload for done in self._aggregations for one in done.payloads if one.verdict == "included"}
        excluded = [one.payload_cid for one in earlier if one.payload_cid not in included]
        is_early = self._spec.training.round_delay and number == unit.round - 1
        eager = [one.payload_cid for one in earlier if one.round == number] if is_early else []
        level = self._spec.training.top_k if unit.top_k is None else unit.top_k
        for name, given, allowed in (
            ("start_slot_state_cid", unit.start_slot_state_cid, [None, *states]),
            ("start_restored_payload_cid", unit.start_restored_payload_cid, [None, *excluded]),
            ("start_eager_payload_cid", unit.start_eager_payload_cid, [None, *eager]),
            ("top_k", level, top_k_levels(self._spec)),
        ):
            self._expect("wrong_start", f"{where}.{name}", True, given in allowed)
        if payload is not None:
            self._expect("wrong_payload", f"{where}.top_k", level, top_k_of(payload))

    def joins(self, last: int | None, *, keeps_replaced: bool) -> None:
        """Join the payloads of the ``last`` rounds again (None: all), and compare the checkpoints."""
        self._keeps_replaced = keeps_replaced
        rounds = range(len(self._aggregations))
        for round_ in rounds if last is None else rounds[max(0, len(rounds) - last) :]:
            self.join(round_)

    def join(self, round_: int) -> None:
        """Join one round again and compare the checkpoint after it."""
        try:
            if round_ == 0:
                self._first_model()
            state = self._outer_state(round_)
            self._state = None if state is None else self._compare(round_, state)
        except ValueError as error:
            self._expect("wrong_aggregation", f"rounds[{round_}]", "payloads that can be joined", str(error))
            self._state = None

    def _first_model(self) -> None:
        started = self._start_checkpoint()
        start = self._spec.start_model if started is None else started.model
        content = self._made_model() if start is None else self._fetch("spec.start_model", start)
        if content is not None:
            first = cid_of_file(save_state(load_state(self._spec, content)))
            self._expect("wrong_model", "checkpoints[0].model", first, self._manifests[0].model)

    def _start_checkpoint(self) -> CheckpointManifest | None:
        """Return the manifest of an earlier job's checkpoint that the job continues."""
        if self._spec.start_checkpoint is None:
            return None
        return CheckpointManifest.from_bytes(self._fetch("spec.start_checkpoint", self._spec.start_checkpoint) or b"")

    def _first_outer_state(self) -> OuterState | None:
        """Return the state before round 0; None after a finding."""
        started = self._start_checkpoint()
        if started is None:
            return initial_outer_state(self._spec)
        cid = started.outer_state
        content = None if cid is None else self._fetch("spec.start_checkpoint.outer_state", cid)
        if cid is not None and content is None:
            return None
        state = load_outer_state(self._spec, content)
        made = cid_of_file(save_outer_state(self._spec, state))
        self._expect("wrong_model", "checkpoints[0].outer_state", made, self._manifests[0].outer_state)
        return state

    def _made_model(self) -> bytes | None:
        """Return the model file of fresh parameters or of the base model; None after a finding."""
        if self._spec.base is None or self._spec.adapter is not None:
            return initial_checkpoint(self._spec)
        try:
            with BaseFiles(self._gateway) as bases:
                return save_state(dict(load_files(self._spec.model, bases.of(self._spec))))
        except (GymError, *UNAVAILABLE) as error:
            self._expect("unresolvable", "spec.model_config.base", "a base model", str(error))
            return None

    def _outer_state(self, round_: int) -> OuterState | None:
        """Return the state before a round; None after a finding."""
        # The market deletes these files some time after a job, and all earlier joins give the state too.
        known = round_
        while known > 0 and not self._has_state(known):
            known -= 1
        if known == 0:
            first = self._first_outer_state()
            self._state = None if first is None else (0, first)
        for earlier in range(known, round_):
            if self._state is not None:
                self.join(earlier)
        return None if self._state is None else self._state[1]

    def _has_state(self, round_: int) -> bool:
        if self._state is None or self._state[0] != round_:
            content = self._fetch(None, self._manifests[round_].outer_state)
            if content is None:
                return False
            self._state = round_, load_outer_state(self._spec, content)
        return True

    def _compare(self, round_: int, state: OuterState) -> tuple[int, OuterState] | None:
        where, done, made = f"rounds[{round_}]", self._aggregations[round_], self._manifests[round_ + 1]
        if done.rolled_back_to is not None:
            self._compare_reason(round_, state)
            return self._compare_rollback(round_, done.rolled_back_to)
        found = self._joined(round_, state)
        if found is None:
            return None
        verdicts = {place: verdict.code for place, verdict in found.verdicts.items()}
        listed = {one.place: one.verdict for one in done.payloads}
        self._expect("wrong_aggregation", f"{where}.verdicts", verdicts, listed)
        files = {
            "model": cid_of_file(save_state(found.parameters)),
            "outer_state": cid_of_file(save_outer_state(self._spec, found.outer_state)),
            "update": cid_of_file(found.update) if found.update else None,
        }
        for name, expected in files.items():
            self._expect("wrong_model", f"{where}.{name}", expected, getattr(made, name))
        return round_ + 1, found.outer_state

    def _compare_reason(self, round_: int, state: OuterState) -> None:
        """Join a rolled back round whose payloads show the reason."""
        reason = self._aggregations[round_].rollback_reason
        if reason == FINAL_LOSS and self._keeps_replaced:
            replaced = self._joined(round_, state)
            self.replaced = None if replaced is None else save_state(replaced.parameters)
        elif reason == STEP_NOT_FINITE:
            try:
                is_refuted = self._joined(round_, state) is not None
            except PayloadError:
                is_refuted = False
            self._expect("wrong_rollback", f"rounds[{round_}].rollback_reason", False, is_refuted)

    def _joined(self, round_: int, state: OuterState) -> Aggregate | None:
        """Return the outer step of a round's payloads; None after a finding."""
        where, done = f"rounds[{round_}]", self._aggregations[round_]
        listed = done.payloads
        model = self._fetch(f"{where}.model", self._manifests[round_].model)
        fetched = {one.place: self._fetch(f"{where}.payloads[{one.place}]", one.payload) for one in listed}
        payloads = {place: payload for place, payload in fetched.items() if payload is not None}
        if model is None or len(payloads) < len(listed):
            return None
        weights = {one.place: one.weight for one in listed}
        is_kept = done.rolled_back_to is not None  # a rollback may need the state again
        return aggregate(self._spec, load_state(self._spec, model), payloads, weights, state, in_place=not is_kept)

    def _compare_rollback(self, round_: int, repeated: int) -> tuple[int, OuterState] | None:
        """Check a checkpoint that repeats an earlier one; return the outer state after it."""
        where, made = f"rounds[{round_}]", self._manifests[round_ + 1]
        reasons = [one.rollback_reason for one in self._aggregations[: round_ + 1] if one.rolled_back_to is not None]
        done = [reason for reason in reasons if reason != FINAL_LOSS]
        self._expect("wrong_rollback", where, (True, True), (repeated <= round_, len(done) <= MAX_ROLLBACKS))
        if repeated > round_:
            return None
        verdicts = {one.verdict for one in self._aggregations[round_].payloads}
        self._expect("wrong_rollback", f"{where}.verdicts", True, verdicts <= {ROLLED_BACK})
        best = self._manifests[repeated]
        initial = cid_of_file(save_outer_state(self._spec, initial_outer_state(self._spec)))
        expected = best.model, best.outer_state or initial, None
        self._expect("wrong_rollback", f"{where}.files", expected, (made.model, made.outer_state, made.update))
        content = self._fetch(None, made.outer_state)
        state = self._outer_state(repeated) if content is None else load_outer_state(self._spec, content)
        return None if state is None else (round_ + 1, state)
