"""Traces of this node's units, some kB each, kept for disputes.

Only the provider knows the states behind a signed root. A dispute requires them on chain, even if the unit's files are
lost. Proofs of inclusion stay when a trace is deleted: they reject disputes of old units.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoo_compute.base.errors import CodedError
from zoo_compute.node.disk.files import write_json
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import UnitCommitment
from zoo_protocol.payments.job_record import leaf_of
from zoo_protocol.verification.trace import state_leaf, trace_root


class TraceLost(CodedError):
    """The trace of a unit is not available; ``code`` is ``trace_unknown`` or ``trace_damaged``."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A signed commitment, and the states that its root covers.

    Attributes:
        environment: environment class of all states, 0x hex of 32 bytes.
        states: digests of the boundary states 0 to the number of segments, 0x hex of 32 bytes each.
        task: the unit's inputs as named by its lease, for retraining; None in files of older versions.
        begun: start replica state, ``{"error_feedback", "steps"}`` (the former a digest, 0x hex), to check a state's
            file; None in files of older versions.
    """

    unit: UnitCommitment
    environment: str
    states: list[str]
    task: dict[str, Any] | None = None
    begun: dict[str, Any] | None = None

    @property
    def unit_id(self) -> str:
        return to_hex(leaf_of(self.unit))

    @property
    def root(self) -> str:
        """Trace root of these states, 0x hex; differs from the signed one if a field was changed."""
        place = self.unit.jobId, self.unit.round, self.unit.slot
        digests = enumerate(map(from_hex, self.states))
        leaves = [state_leaf(*place, boundary, digest, self.environment) for boundary, digest in digests]
        return to_hex(trace_root(leaves))


@dataclass(frozen=True, slots=True)
class Inclusion:
    """Window of a unit on chain: its root and the proof of the unit's leaf, 0x hex."""

    root: str
    proof: list[str]


class Traces:
    """Traces as files ``<directory>/<unit id>.json``, written atomically.

    Proofs of inclusion are in ``<directory>/windows/<unit id>.json``.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self._windows = directory, directory / "windows"
        self._windows.mkdir(parents=True, exist_ok=True)

    def keep(self, trace: Trace) -> None:
        """Store a trace; its retention starts again."""
        write_json(self._directory / f"{trace.unit_id}.json", asdict(trace))

    def keep_inclusion(self, unit_id: str, inclusion: Inclusion) -> None:
        """Store a unit's window without an end, as its leaf can be committed again at any time."""
        write_json(self._windows / f"{unit_id}.json", asdict(inclusion))

    def inclusion(self, unit_id: str) -> Inclusion | None:
        """Return the stored window of a unit; None if the file is missing or unreadable."""
        try:
            return Inclusion(**json.loads((self._windows / f"{unit_id}.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def find(self, unit_id: str) -> Trace:
        """Return the trace of a unit. Raises TraceLost: the file is missing or changed."""
        path = self._directory / f"{unit_id}.json"
        try:
            document = json.loads(path.read_text())
            unit = UnitCommitment(**document["unit"])
            start = document.get("task"), document.get("begun")
            trace = Trace(unit, document["environment"], document["states"], *start)
            if (trace.unit_id, trace.root) == (unit_id, trace.unit.traceRoot):
                return trace
        except FileNotFoundError as error:
            raise TraceLost(
                "trace_unknown", f"{self._directory} has no trace of the unit: wrong state directory, or a lost file"
            ) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # unreadable or changed
        raise TraceLost("trace_damaged", f"{path} does not match the signed root: the file was changed")

    def tidy(self, keep_seconds: float, now: float) -> None:
        """Remove files written more than ``keep_seconds`` before ``now`` (Unix seconds)."""
        oldest = now - keep_seconds
        for path in self._directory.glob("*.json"):
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
