"""A training job as its user writes it, in Python or in a YAML or JSON file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from zoo_compute.amounts import parse_zen
from zoo_compute.errors import ConfigError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_KEYS: dict[str, type | tuple[type, ...]] = {
    "model_config": dict,
    "data_config": dict,
    "training_config": dict,
    "tier": str,
    "nodes": int,
    "budget_max": (str, int),
    "max_price": (str, int, float),
    "wait": str,
    "checkpoint": dict,
    "requirements": dict,
}


@dataclass(frozen=True, slots=True)
class LocalDataset:
    """Two text files that become a dataset when they are uploaded."""

    train: Path
    validation: Path


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What to train, on how many nodes of which tier, for how much, waiting for how long.

    Attributes:
        dataset: CID of a dataset manifest, or files to upload.
        budget_max: wei of ZEN put in escrow; never more is spent.
        max_price: highest price in wei of ZEN per GPU-hour, fee included; None takes the tier's reserve price.
        wait: how long to wait for capacity; then the job expires with a full refund.
        model: ``hidden_size, num_layers, …``; what is left out takes the market's default.
        training: ``rounds, inner_steps, batch_size, learning_rate, …``.
        checkpoint: ``interval`` in rounds and ``redundancy`` in nodes.
        requirements: of each node: ``regions, excluded_regions, environment_classes, min_gpu_memory_gb,
            min_reliability_bps, attested_only``.
    """

    dataset: str | LocalDataset
    budget_max: int
    max_price: int | None = None
    wait: timedelta = timedelta(hours=1)
    tier: str = "bronze"
    nodes: int = 1
    model: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    requirements: Mapping[str, Any] = field(default_factory=dict)


def load(path: Path, overrides: Mapping[str, Any] | None = None) -> JobSpec:
    """The job in a YAML or JSON file. Amounts are in ZEN (``2.5``) or wei (``2500 wei``), ``wait`` like ``30m``.

    ``data_config`` names either ``dataset``, a manifest's CID, or the text files ``train`` and ``validation``, relative
    to the job file.

    Args:
        overrides: take the place of the file's keys of the same name.

    Raises:
        ConfigError: the file cannot be read; a key is unknown (the nearest is named), missing or of a wrong type.
    """
    document = {**_read(path), **(overrides or {})}
    for key, value in document.items():
        if key not in _KEYS:
            nearest = get_close_matches(str(key), list(_KEYS), n=1, cutoff=0.0)[0]
            raise _wrong(path, f"{key!r} is no known key; the nearest is {nearest!r}")
        if not isinstance(value, _KEYS[key]) or isinstance(value, bool):
            raise _wrong(path, f"{key} cannot be {value!r}")
    for key in ("data_config", "budget_max"):
        if key not in document:
            raise _wrong(path, f"{key} is missing")
    max_price = document.get("max_price")
    return JobSpec(
        dataset=_dataset(path, document["data_config"]),
        budget_max=parse_zen(str(document["budget_max"]), "budget_max"),
        # YAML reads 2.5 as a float; its shortest decimal form is what was written.
        max_price=None if max_price is None else parse_zen(str(max_price), "max_price"),
        wait=parse_duration(document.get("wait", "1h"), "wait"),
        tier=document.get("tier", "bronze"),
        nodes=document.get("nodes", 1),
        model=document.get("model_config", {}),
        training=document.get("training_config", {}),
        checkpoint=document.get("checkpoint", {}),
        requirements=document.get("requirements", {}),
    )


def parse_duration(text: str, name: str = "duration") -> timedelta:
    """A duration written as a whole number and ``s``, ``m``, ``h`` or ``d``.

    Raises:
        ConfigError: if it is not; ``name`` says which it was.
    """
    found = re.fullmatch(r"\s*(\d{1,6})\s*([smhd])\s*", text)
    if found is None:
        raise ConfigError(
            "duration-malformed", f"{name} is {text!r}", remedy="Write a number and a unit: 45s, 30m, 2h or 1d."
        )
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])


def deadline(wait: timedelta) -> datetime:
    """The end of a wait that begins now, in whole seconds."""
    return (datetime.now(UTC) + wait).replace(microsecond=0)


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _wrong(path, f"is neither YAML nor JSON: {error}") from error
    if not isinstance(document, dict):
        raise _wrong(path, "must hold an object with the keys " + ", ".join(_KEYS))
    return document


def _dataset(path: Path, document: dict[str, Any]) -> str | LocalDataset:
    if set(document) == {"dataset"} and isinstance(document["dataset"], str):
        return str(document["dataset"])
    if set(document) == {"train", "validation"}:
        return LocalDataset(*(path.parent / str(document[name]) for name in ("train", "validation")))
    raise _wrong(path, "data_config must have the key dataset (a CID), or the keys train and validation (text files)")


def _wrong(path: Path, detail: str) -> ConfigError:
    return ConfigError(
        "job-file-unusable", f"{path}: {detail}", remedy=f"The keys of a job file are {', '.join(_KEYS)}."
    )
