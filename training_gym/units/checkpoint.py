"""Checkpoints: model file, and manifest that binds them to a job. No network, no torch.

A manifest is canonical JSON with the fields of :class:`CheckpointManifest` and ``"kind": "zoo-checkpoint/2"``. Hashes
are 0x hex. ``round`` counts the rounds done, ``data_cursor`` the inner steps done per slot. ``parent`` is the CID of
the manifest before, or null.

``slot_states`` has the replica state with which each slot's next unit starts; a missing slot starts with zeros.
``outer_state`` is the input of the next outer step (``outer_step.load_outer_state``); null is the initial one.
``update`` turns the parent's model into this one (``outer_step.catch_up``); null if nodes fetch the whole model.
``aggregation`` is the record of the aggregated payloads (docs/protocol.md); null for the initial checkpoint.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training_gym.model.layout import Arrays, NamedArrays, initial_parameters, parameter_shapes
from training_gym.model.tensors import load_arrays, map_arrays, read_arrays, safetensors_pieces
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import ManifestError
from training_gym.spec.manifests import read_cid, read_fields, read_hash, read_integer, read_json, read_pattern
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import canonical_json

KIND = "zoo-checkpoint/2"
MAX_ROUNDS = 10_000
MAX_SLOTS = 4096


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """One checkpoint of a job; the module's docstring describes its fields."""

    job_id: str
    round: int
    parent: str | None
    model: str
    outer_state: str | None
    update: str | None
    aggregation: str | None
    slot_states: dict[str, str]
    data_cursor: int
    spec_hash: str

    def to_bytes(self) -> bytes:
        """Return the canonical manifest file."""
        return canonical_json({"kind": KIND, **asdict(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> "CheckpointManifest":
        """Parse an untrusted manifest file. Raises ManifestError, which names the wrong field."""
        document = read_fields(read_json(data, "checkpoint manifest"), "manifest", ["kind", *cls.__slots__])
        if document["kind"] != KIND:
            raise ManifestError("unsupported_value", "manifest.kind", f"must be {KIND!r}")
        manifest = cls(
            job_id=read_hash(document["job_id"], "job_id"),
            round=read_integer(document["round"], "round", 0, MAX_ROUNDS),
            parent=_read_optional_cid(document, "parent"),
            model=read_cid(document["model"], "model"),
            outer_state=_read_optional_cid(document, "outer_state"),
            update=_read_optional_cid(document, "update"),
            aggregation=_read_optional_cid(document, "aggregation"),
            slot_states=_read_slot_states(document["slot_states"]),
            data_cursor=read_integer(document["data_cursor"], "data_cursor", 0, 2**53 - 1),
            spec_hash=read_hash(document["spec_hash"], "spec_hash"),
        )
        if manifest.to_bytes() != data:
            raise ManifestError("not_canonical", "manifest", "is not canonical JSON; write it again")
        return manifest


def _read_optional_cid(document: Mapping[str, Any], field: str) -> str | None:
    return None if document[field] is None else read_cid(document[field], field)


def _read_slot_states(document: object) -> dict[str, str]:
    if not isinstance(document, dict) or len(document) > MAX_SLOTS:
        raise ManifestError("wrong_type", "slot_states", f"must be an object of at most {MAX_SLOTS} slots")
    return {
        read_pattern(slot, "slot_states", "0|[1-9][0-9]{0,3}", "a slot number"): read_cid(cid, f"slot_states.{slot}")
        for slot, cid in document.items()
    }


def write_checkpoint(manifest: CheckpointManifest, files: Iterable[bytes], directory: Path) -> None:
    """Write ``files`` under their CIDs, and last ``checkpoint.json``, to ``directory``."""
    for content in files:
        (directory / cid_of_file(content)).write_bytes(content)
    (directory / "checkpoint.json").write_bytes(manifest.to_bytes())


def initial_checkpoint(spec: TrainingSpec) -> bytes:
    """Return round 0's model file, a pure function of the specification."""
    return save_state(initial_parameters(spec))


def save_state(parameters: NamedArrays) -> bytes:
    """Return the model file of ``parameters``; equal parameters give equal CIDs."""
    return b"".join(state_pieces(parameters))


def state_pieces(parameters: NamedArrays) -> list[bytes | memoryview]:
    """Return the bytes of :func:`save_state` as views of ``parameters``, without a copy."""
    return list(safetensors_pieces(parameters))


def load_state(spec: TrainingSpec, data: bytes) -> Arrays:
    """Return a model file's parameters. Raises StateError: malformed, other specification."""
    return load_arrays(data, parameter_shapes(spec), "checkpoint")


def read_state(spec: TrainingSpec, pieces: Iterable[bytes]) -> Arrays:
    """Return a model file's parameters, one piece in memory. Raises StateError."""
    return read_arrays(pieces, parameter_shapes(spec), "checkpoint")


def map_state(spec: TrainingSpec, path: Path) -> NamedArrays:
    """Return what :func:`load_state` does of a file, each parameter mapped at its access."""
    return map_arrays(path, parameter_shapes(spec), "checkpoint")
