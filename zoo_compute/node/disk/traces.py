"""The traces of this node's units, kept for the case that one is disputed: some kB each, which outlive a restart.

A trace is what only its provider knows of a commitment: the states that the signed root is of. It has to be shown on
the chain when a unit is disputed, whatever else became of the unit's files.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoo_compute.node.disk.durable_files import write_json
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import UnitCommitment
from zoo_protocol.payments.job_record import leaf_of
from zoo_protocol.verification.trace import state_leaf, trace_root


class TraceLost(Exception):
    """The trace of a unit cannot be shown.

    Attributes:
        code: ``trace_unknown`` or ``trace_damaged``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Trace:
    """A commitment of ours, and what its root is of.

    Attributes:
        unit: what was signed.
        environment: environment class of all states, 0x hex of 32 bytes.
        states: digests of the states at all boundaries, from 0 to the number of segments, 0x hex of 32 bytes each.
        task: what the unit was trained from, as its lease named it: by that the states themselves are made again. None
            in a file of before this was kept.
        begun: of the slot state that the unit began with, ``{"error_feedback", "steps"}`` (of the former the digest, 0x
            hex): by that a state's file is told from a damaged one. None in a file of before this was kept.
    """

    unit: UnitCommitment
    environment: str
    states: list[str]
    task: dict[str, Any] | None = None
    begun: dict[str, Any] | None = None

    @property
    def unit_id(self) -> str:
        """The commitment's leaf in its window, 0x hex."""
        return to_hex(leaf_of(self.unit))

    @property
    def root(self) -> str:
        """Root of these states, 0x hex: the signed one, unless something was changed."""
        unit, places = self.unit, enumerate(self.states)
        return to_hex(
            trace_root(
                [
                    state_leaf(unit.jobId, unit.round, unit.slot, boundary, from_hex(state), self.environment)
                    for boundary, state in places
                ]
            )
        )


class Traces:
    """Traces as files, ``<directory>/<unit id>.json``. Each is there in full or not at all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def keep(self, trace: Trace) -> None:
        """Write a trace down; its time starts (again)."""
        write_json(self._directory / f"{trace.unit_id}.json", asdict(trace))

    def find(self, unit_id: str) -> Trace:
        """The trace of a unit.

        Raises:
            TraceLost: it is not here, or its file is not what was written.
        """
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
                "trace_unknown", f"{self._directory} has no trace of it: another state directory, or one that was lost"
            ) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # unreadable, cut or changed: as below
        raise TraceLost("trace_damaged", f"{path} does not lead to what was signed: the disk has changed it")

    def tidy(self, keep_seconds: float, now: float) -> None:
        """Remove what was written longer than ``keep_seconds`` before ``now`` (Unix seconds)."""
        oldest = now - keep_seconds
        for path in self._directory.glob("*.json"):
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
