"""Checkpoints: the model file, and the manifest that ties them to a job. No network, no torch.

A manifest is the canonical JSON of::

    {"kind": "zoo-checkpoint/2", "job_id": "0x...", "round": rounds done, "parent": CID or null, "model": CID,
     "outer_state": CID or null, "update": CID or null, "aggregation": CID or null, "slot_states": {slot: CID},
     "data_cursor": inner steps done per slot, "spec_hash": "0x..."}

``slot_states`` names, per slot, what that slot's next unit starts with; a slot that is not named starts with none.
``outer_state`` names what the next outer step starts with (``outer.load_outer_state``); null is the initial one.
``update`` names what makes the parent's model this one (``outer.catch_up``); null where nodes fetch the whole model.
``aggregation`` names the record of the payloads that it was made of (docs/protocol.md); null for the initial one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training_gym.model.layout import Arrays, initial_parameters, parameter_shapes
from training_gym.model.tensors import load_arrays, safetensors_pieces
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import ManifestError
from training_gym.spec.manifests import read_cid, read_fields, read_hash, read_integer, read_json, read_pattern
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import canonical_json

KIND = "zoo-checkpoint/2"


MAX_ROUNDS = 10_000


MAX_SLOTS = 4096


_FIELDS = [
    "kind",
    "job_id",
    "round",
    "parent",
    "model",
    "outer_state",
    "update",
    "aggregation",
    "slot_states",
    "data_cursor",
    "spec_hash",
]


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """One checkpoint of a job, see the module's docstring for its fields and units."""

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
        """The canonical manifest file."""
        return canonical_json({"kind": KIND, **asdict(self)})

    @classmethod
    def from_bytes(cls, data: bytes) -> "CheckpointManifest":
        """The manifest in a file from a stranger.

        Raises:
            ManifestError: naming the field that is wrong.
        """
        document = read_fields(read_json(data, "checkpoint manifest"), "manifest", _FIELDS)
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
            raise ManifestError("not_canonical", "manifest", "is not the canonical JSON of what it says; write it anew")
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
    """Keep a checkpoint without storage: in ``directory`` each of its ``files`` under its CID, the manifest as
    ``checkpoint.json``, all with the bytes that they have in storage. The manifest comes last."""
    for content in files:
        (directory / cid_of_file(content)).write_bytes(content)
    (directory / "checkpoint.json").write_bytes(manifest.to_bytes())


def initial_checkpoint(spec: TrainingSpec) -> bytes:
    """The model file of round 0: a pure function of the specification, equal on every machine."""
    return save_state(initial_parameters(spec.model, spec.training.seed))


def save_state(parameters: Arrays) -> bytes:
    """The model file of ``parameters``: equal parameters give equal bytes, hence equal CIDs."""
    return b"".join(state_pieces(parameters))


def state_pieces(parameters: Arrays) -> list[bytes | memoryview]:
    """The bytes of :func:`save_state` as views of ``parameters``, to be stored without a copy of them."""
    return safetensors_pieces(parameters)


def load_state(spec: TrainingSpec, data: bytes) -> Arrays:
    """The parameters in a model file.

    Raises:
        StateError: too large, malformed, not this specification's model, or not finite.
    """
    return load_arrays(data, parameter_shapes(spec.model), "checkpoint")
