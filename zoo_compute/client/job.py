"""Handle on one job: follow it, change it, fetch its results."""

import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo_compute.base.errors import ConfigError, JobUnsuccessful, Unreachable, ZooError
from zoo_compute.base.models import Checkpoint, Event, JobState, Quote
from zoo_compute.client.http import NoAnswer

if TYPE_CHECKING:
    from zoo_compute.client.client import Client
    from zoo_compute.client.results import TrainedModel

log = logging.getLogger(__name__)
_POLL_SECONDS = 0.5
_RECONNECT_SECONDS = 1.0
_WHOLE, _WEI = ((int,), "a whole number"), ((int,), "a whole number of wei")
_CHANGES: dict[str, tuple[tuple[type, ...], str]] = {
    **{"nodes": _WHOLE, "rounds": _WHOLE, "budget_max": _WEI, "max_price": _WEI},
    "wait_until": ((datetime,), "a datetime"),
    "name": ((str,), "a text"),
    "organisation": ((int,), "an organisation's id, or 0 for your own account"),
    "final_rate_share": ((int, float), "a share from 0 to 1"),
    "start_rate_share": ((int, float), "a share above 0, up to 1"),
}
"""Changes of a clone or an extension: types, and expected form for error messages."""
Approve = Callable[[Quote, int], None]
"""Consent to a quote and a budget in wei; refuses by an exception."""


class Job:
    """One job of one market; ``id`` is the hash of its order (0x hex of 32 bytes)."""

    def __init__(self, client: "Client", job_id: str) -> None:
        self.id = job_id
        self._client = client
        self._path = f"/v1/jobs/{job_id}"

    def __repr__(self) -> str:
        return f"Job({self.id})"

    def state(self) -> JobState:
        """Return the job's current state."""
        return JobState.model_validate(self._client.connection.get(self._path))

    def why(self) -> dict[str, Any]:
        """Return the match diagnostics: findings, nodes by constraint, possible changes."""
        answer: dict[str, Any] = self._client.connection.get(f"{self._path}/why")
        return answer

    def wait(self, timeout: float | None = None) -> JobState:
        """Block until the job is over, at most ``timeout`` seconds. Return its final state.

        Raises:
            JobUnsuccessful: it was rejected, expired, cancelled or failed; ``code`` is its reason.
            TimeoutError: it is not over yet.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not (state := self.state()).is_over:
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job {self.id} is {state.status} after {timeout} s")
            time.sleep(_POLL_SECONDS)
        return require_model(state)

    def events(self, after: int = 0) -> Iterator[Event]:
        """Yield all events in order until the job is over.

        After a lost connection it continues from the last event and logs one warning.

        Args:
            after: id of the last event already seen.
        """
        warned = False
        while True:
            try:
                for event in self._stream(after):
                    after, warned = event.id, False
                    yield event
                if self.state().is_over:
                    return
            except (NoAnswer, Unreachable) as error:
                if not warned:
                    log.warning("market_unreachable error=%s", error)
                warned = True
                time.sleep(_RECONNECT_SECONDS)

    def _stream(self, after: int) -> Iterator[Event]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        with self._client.connection.stream("GET", f"{self._path}/events", headers=headers) as response:
            yield from parse_events(response.iter_lines())

    def cancel(self) -> JobState:
        """Stop the job. Delivered units are still verified and paid, the rest is refunded.

        Raises:
            ApiError: the job is past cancellation.
        """
        return JobState.model_validate(self._client.connection.post(f"{self._path}/cancel"))

    def amend(self, *, max_price: int | None = None, wait_until: datetime | None = None) -> JobState:
        """Lower the bid (wei per GPU-hour) or shorten the wait, within the signed order.

        Raises:
            ApiError: the order does not allow it, or the job does not wait.
        """
        given = {
            "max_price": None if max_price is None else str(max_price),
            "wait_until": None if wait_until is None else wait_until.isoformat(),
        }
        body = {name: value for name, value in given.items() if value is not None}
        return JobState.model_validate(self._client.connection.call("PATCH", self._path, repeatable=True, json=body))

    def pause(self) -> JobState:
        """Pause the job. Leased units are finished and paid. Raises ApiError if the job has ended."""
        return JobState.model_validate(self._client.connection.post(f"{self._path}/pause", repeatable=True))

    def resume(self) -> JobState:
        """Resume a paused job. Raises ApiError if it has ended."""
        return JobState.model_validate(self._client.connection.post(f"{self._path}/resume", repeatable=True))

    def clone(self, *, approve: Approve | None = None, **changes: Any) -> "Job":
        """Sign and submit a copy of this job.

        Args:
            approve: as for :meth:`zoo_compute.Client.submit`.
            changes: ``nodes``, ``budget_max`` and ``max_price`` in wei, ``wait_until``: by default as long a wait.
                ``name`` and ``organisation`` (0: the own account), by default this job's. None is as good as not
                given.

        Raises:
            Mismatch: the market's proposal differs from the request.
            ApiError, ConfigError: as for :meth:`zoo_compute.Client.submit`.
        """
        return Job(self._client, self._client.submit_proposed(self.id, "clone", _given(changes), approve))

    def extend(self, *, approve: Approve | None = None, **changes: Any) -> "Job":
        """Sign and submit a job that continues this one.

        Args and errors as for :meth:`clone`, plus ``rounds``, ``final_rate_share`` and ``start_rate_share``.
        """
        return Job(self._client, self._client.submit_proposed(self.id, "extend", _given(changes), approve))

    def metrics(self) -> list[dict[str, Any]]:
        """Return losses, times and included units, by round."""
        found: list[dict[str, Any]] = self._client.connection.get(f"{self._path}/metrics")["rounds"]
        return found

    def efficiency(self) -> dict[str, Any]:
        """Return throughput, time shares and bytes, compared with the same nodes in one data centre."""
        found: dict[str, Any] = self._client.connection.get(f"{self._path}/efficiency")
        return found

    def units(self) -> list[dict[str, Any]]:
        """Return the work units, by round and replica."""
        found: list[dict[str, Any]] = self._client.connection.get(f"{self._path}/units")
        return found

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints, by round."""
        return [Checkpoint.model_validate(item) for item in self._client.connection.get(f"{self._path}/checkpoints")]

    def receipt(self) -> dict[str, Any]:
        """Return the receipt of a settled job, as the market reports it."""
        found: dict[str, Any] = self._client.connection.get(f"{self._path}/receipt")
        return found

    def download(self, path: str | Path, *, after: int | None = None) -> int:
        """Write the trained model to the folder ``path``, which ``from_pretrained`` loads.

        Every file is checked against its CID. The folder has the tokenizer and a model card. That of an adapter has
        its base model too. Return the bytes of the trained tensors.

        Args:
            after: rounds after which the model is taken, as of a job that ended early; None: the final model.

        Raises:
            ZooError: there is no such model; JobUnsuccessful: the job has ended without one.
            ConfigError: the folder is not writable.
        """
        from zoo_compute.client.results import write_result

        return write_result(self._client, self._trained(after), Path(path))

    def model_cid(self, after: int | None = None) -> str:
        """Return the CID of the final model, or of that ``after`` so many rounds.

        Raises as :meth:`download`.
        """
        return self._model_cid(self.state(), after)

    def sample(self, prompt: str, length: int, *, temperature: float = 0.8, seed: int = 0) -> str:
        """Generate ``length`` tokens after ``prompt`` on this machine. Needs torch.

        Raises:
            ConfigError: the prompt is empty, or a setting is malformed.
            ZooError: there is no model yet.
        """
        if not prompt:
            raise ConfigError("prompt-empty", "prompt is empty", remedy="Give at least one character.")
        for name, value, fits, written in (
            ("prompt", prompt, isinstance(prompt, str), "a text"),
            ("length", length, type(length) is int and length >= 0, "a whole number of tokens, 0 or more"),
            (
                "temperature",
                temperature,
                type(temperature) in (int, float) and 0 < temperature < math.inf,
                "a number above 0",
            ),
            ("seed", seed, type(seed) is int and 0 <= seed < 1 << 63, "a whole number from 0 to 2^63 - 1"),
        ):
            if not fits:
                raise _malformed("sample", name, value, written)
        from training_gym.model.generate import continue_text
        from training_gym.units.checkpoint import load_state
        from zoo_compute.client import datasets, models, results

        trained = self._trained()
        spec = trained.spec
        tokenizer = results.load_tokenizer(self._client, datasets.read_manifest(self._client, spec.dataset))
        model = self._client.fetch(trained.cid, max_bytes=16 * spec.num_parameters() + (1 << 20))
        base = None if spec.adapter is None else models.load_base(self._client, spec)
        parameters = load_state(spec, model)
        return continue_text(spec, parameters, tokenizer, prompt, length, temperature, seed, base).text

    def _trained(self, after: int | None = None) -> "TrainedModel":
        from training_gym.spec.config import TrainingSpec
        from zoo_compute.client.results import TrainedModel

        state = self.state()
        return TrainedModel(self.id, self._model_cid(state, after), TrainingSpec.from_dict(state.spec))

    def _model_cid(self, state: JobState, after: int | None) -> str:
        if after is None and state.final_model_cid is not None:
            return state.final_model_cid
        found = {one.round: one for one in self.checkpoints()}
        if after in found:
            return found[after].model_cid
        named = "final model" if after is None else f"model after round {after}"
        kind, remedy = ZooError, f"Wait for it: zoo-compute job watch {self.id}"
        if after is not None and found:
            remedy = f"Take a round from 0 to {max(found)}."
        elif state.is_over:
            best = _best_of(self.id, list(found.values())) if found else ""
            kind, remedy = JobUnsuccessful, f"It has ended without one.{best}"
        raise kind("no-model-yet", f"job {self.id} is {state.status} and has no {named}", remedy=remedy)


def _given(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changes without those that are None. Raises ConfigError for a wrong type."""
    found = {name: value for name, value in changes.items() if value is not None}
    for name in found.keys() & _CHANGES.keys():  # the market refuses other names
        kinds, written = _CHANGES[name]
        value = found[name]
        is_no_number = isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value))
        if is_no_number or not isinstance(value, kinds):
            raise _malformed("change", name, value, written)
    return found


def _malformed(what: str, name: str, value: object, written: str) -> ConfigError:
    return ConfigError(f"{what}-malformed", f"{name} is {value!r:.80}", remedy=f"Give {name} as {written}.")


def _best_of(job_id: str, checkpoints: Sequence[Checkpoint]) -> str:
    def rank(one: Checkpoint) -> tuple[float, int]:
        """Return lowest first, of equal losses the first round, of unknown ones the last."""
        return (math.inf, -one.round) if one.validation_loss is None else (float(one.validation_loss), one.round)

    best = min(checkpoints, key=rank)
    return f" Its best model is that after round {best.round}: zoo-compute job download {job_id} --after {best.round}"


def require_model(state: JobState) -> JobState:
    """Return the state of a job that ended with a model. Raises JobUnsuccessful: it did not."""
    if not state.is_successful:
        reason = state.reason or state.status
        remedy = f"See why: zoo-compute job why {state.id}"
        raise JobUnsuccessful(reason, f"job {state.id} ended as {state.status}: {reason}", remedy=remedy)
    return state


def parse_events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events of a server-sent event stream. Skips comments and events without an id."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "id" in fields and "data" in fields:
                data = json.loads(fields["data"])
                yield Event(id=int(fields["id"]), kind=fields.get("event", "message"), data=data)
            fields = {}
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
