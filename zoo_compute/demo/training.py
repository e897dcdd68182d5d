"""Report on the demonstration's training: updates, slow link, late payload, leaver.

Times, bytes and rates are reports of the nodes. The leaver's catch-up is from its log. All other facts are from the
record on chain, the manifests of checkpoints, and the payloads on storage.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training_gym.compress.link_adaptation import choose_top_k
from training_gym.compress.payload_format import top_k_of
from training_gym.exchange.deadlines import staleness_weight
from training_gym.spec.config import CHUNK, TrainingSpec
from training_gym.spec.manifests import MAX_MANIFEST_BYTES
from training_gym.units.checkpoint import CheckpointManifest
from zoo_compute.audit.settlements import fetch_record
from zoo_compute.base.errors import Mismatch
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.client.client import Client
from zoo_compute.client.job import Job
from zoo_compute.content.gateway import GatewayClient
from zoo_protocol.hashing import from_hex, sha256, to_hex
from zoo_protocol.payments.job_record import VERIFIED, JobRecord
from zoo_protocol.verification.trace import payload_hash

LONG_UNIT_SECONDS = 5.0
"""Unit time: in 1/20 of a longer one, a whole update (131 kB at 8 bits) can go over 4 Mbit/s."""

_MAX_UPDATE_BYTES = 1 << 24
Units = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Parts:
    """Addresses of nodes, and rounds of :class:`zoo_compute.demo.incidents.Incidents`."""

    slow: str
    delayed: str
    held_up_round: int | None
    leaver: str
    left_after: int | None
    catch_up_entries: list[dict[str, int]]


def build_report(client: Client, job: Job, parts: Parts, model_bytes: int) -> dict[str, Any]:
    """Return the report on a completed, settled job as JSON.

    Raises:
        Mismatch: the node on the slow link delivered nothing.
    """
    report, units = job.efficiency(), job.units()
    delivered = [unit for unit in units if unit["uploaded_at"]]
    cids = [checkpoint.cid for checkpoint in job.checkpoints()]
    manifests = [CheckpointManifest.from_bytes(client.fetch(cid, max_bytes=MAX_MANIFEST_BYTES)) for cid in cids]
    return {
        "update_bytes": round(report["bytes_up_measured"] / max(1, len(delivered))),
        "model_bytes": model_bytes,
        "delivered": len(delivered),
        "joined": sum(unit["included"] is True for unit in delivered),
        "slow_link": _slow_link(client, job, parts.slow, report, delivered),
        "late": _late(client, manifests, parts, delivered),
        "leaver": _leaver(client, manifests, parts, units, delivered),
        "tokens_per_second": report["tokens_per_second"],
        "share_of_ideal": report["share_of_ideal"],
        "shares": {part: report[f"share_{part}"] for part in ("compute", "transfer", "wait")},
    }


def _slow_link(client: Client, job: Job, slow: str, report: Mapping[str, Any], delivered: Units) -> dict[str, Any]:
    spec = TrainingSpec.from_dict(job.state().spec)
    own = [unit for unit in delivered if unit["provider"] == slow]
    node = next((node for node in report["nodes"] if node["provider"] == slow), None)
    if node is None:
        raise Mismatch("demo-promise-broken", f"{slow}, on the slow link, delivered no unit")
    payloads = [client.fetch(unit["payload_cid"], max_bytes=_MAX_UPDATE_BYTES) for unit in own]
    whole = next((unit for unit in delivered if unit["top_k"] == spec.training.top_k), own[0])
    measured = [(unit["report"]["up_bytes_per_second"], unit["report"]["compute_ms"] / 1000) for unit in own]
    return {
        "provider": slow,
        "units": node["units"],
        "late": sum(bool(unit["rounds_late"]) for unit in own),
        "share_transfer": node["seconds_transfer"] / max(1e-3, node["seconds_compute"] + node["seconds_transfer"]),
        "bytes_per_second": node["up_bytes_per_second"],
        "seconds_per_unit": round(node["seconds_compute"] / node["units"], 3),
        "quickest_seconds": min((seconds for _, seconds in measured[:-1]), default=None),
        "asked_of_others": spec.training.top_k,
        "told": [unit["top_k"] for unit in own],
        # The first unit has no measurement before it; each other one follows the report before it.
        "by_the_rule": [spec.training.top_k, *(choose_top_k(spec, *last) for last in measured[:-1])],
        "sent": [top_k_of(payload) for payload in payloads],
        "committed": _are_committed(client, job, own, payloads),
        "least_bytes": min(map(len, payloads)),
        "whole_bytes": len(client.fetch(whole["payload_cid"], max_bytes=_MAX_UPDATE_BYTES)),
    }


def _are_committed(client: Client, job: Job, units: Units, payloads: Sequence[bytes]) -> bool:
    """Return True if each payload matches the signed hash in the record on chain."""
    network = client.network()
    settlement = ChainReader(network.rpc_url, network.contracts, network.start_block).settlement(job.id)
    with GatewayClient(network.gateways) as gateway:
        record = JobRecord.from_bytes(fetch_record(gateway, settlement.parts[-1].record))
    salts = {
        (unit.round, unit.slot, unit.provider, unit.payload_hash): unit.salt
        for unit in record.units
        if unit.salt is not None
    }

    def is_of(unit: Mapping[str, Any], payload: bytes) -> bool:
        place = unit["round"], unit["slot"], unit["provider"], unit["payload_hash"]
        salt = salts.get(place)
        if salt is None:
            return False
        bound = to_hex(payload_hash(sha256(payload), unit["provider"], from_hex(salt)))
        return bool(bound == unit["payload_hash"])

    return all(map(is_of, units, payloads))


def _late(
    client: Client, manifests: Sequence[CheckpointManifest], parts: Parts, delivered: Units
) -> dict[str, Any] | None:
    late = [unit for unit in delivered if unit["provider"] == parts.delayed and unit["round"] == parts.held_up_round]
    if not late:
        return None
    unit, joined = late[-1], []
    for cid in (manifest.aggregation for manifest in manifests if manifest.aggregation is not None):
        record = json.loads(client.fetch(cid, max_bytes=MAX_MANIFEST_BYTES))
        found = [entry for entry in record["payloads"] if entry["payload"] == unit["payload_cid"]]
        joined += [
            {"round": record["round"], "weight_one": record["weight_one"]}
            | {name: entry[name] for name in ("weight", "verdict")}
            for entry in found
        ]
    return {
        "provider": parts.delayed,
        "round": unit["round"],
        "rounds_late": unit["rounds_late"],
        "paid": unit["status"] == VERIFIED,
        "joined": joined,
    }


def _leaver(
    client: Client, manifests: Sequence[CheckpointManifest], parts: Parts, units: Units, delivered: Units
) -> dict[str, Any]:
    own = [unit for unit in units if unit["provider"] == parts.leaver]
    first = parts.catch_up_entries[0] if parts.catch_up_entries else None
    since = [] if first is None else manifests[first["from_round"] + 1 : first["round"] + 1]
    updates = [manifest.update for manifest in since if manifest.update is not None]
    left_after = parts.left_after
    return {
        "provider": parts.leaver,
        "left_after": left_after,
        "lost": [unit["reason"] for unit in own if unit["status"] == "lost"],
        "delivered_since": sum(
            unit["provider"] == parts.leaver and left_after is not None and unit["round"] >= left_after
            for unit in delivered
        ),
        "caught_up": first,
        "updates_on_storage": [len(client.fetch(cid, max_bytes=_MAX_UPDATE_BYTES)) for cid in updates],
    }


def checks(training: Mapping[str, Any]) -> dict[str, bool]:
    """Return the expected results for slow link, late payload and leaver, each with its outcome.

    The slow link's compression level fits 1/20 of a unit's time by its last report. It is below the others', unless the
    machine is so slow that each unit took longer than ``LONG_UNIT_SECONDS``.
    """
    slow, late, absent = training["slow_link"], training["late"], training["leaver"]
    joined = late["joined"] if late is not None else []
    weighs = [item["weight"] for item in joined if item["verdict"] == "included"]
    first, on_storage = absent["caught_up"], absent["updates_on_storage"]
    return {
        "the slow link's compression level follows the rule": slow["told"] == slow["by_the_rule"],
        "it is below the others' level": min(slow["told"]) < slow["asked_of_others"]
        or (slow["quickest_seconds"] or 0.0) > LONG_UNIT_SECONDS,
        "the slow link sent the assigned number of entries and committed to it": slow["sent"] == slow["told"]
        and slow["committed"] is True,
        "fewer entries are smaller": min(slow["told"]) == slow["asked_of_others"]
        or slow["least_bytes"] < slow["whole_bytes"],
        "a payload came late and was aggregated once": len(joined) == len(weighs) == 1
        and all(item["round"] > late["round"] for item in joined),
        "its weight follows its delay": bool(late and late["rounds_late"])
        and weighs == [staleness_weight(late["rounds_late"])]
        and weighs[0] < joined[0]["weight_one"],
        "the late node is paid": late is not None and late["paid"] is True,
        "the leaver returned": absent["delivered_since"] > 0,
        "it caught up by the missed updates": first is not None
        and first["updates"] == len(on_storage) > 0
        and first["update_bytes"] == sum(on_storage) < first["model_bytes"] == training["model_bytes"],
    }


def report_lines(training: Mapping[str, Any], names: Mapping[str, str], link_mbps: float) -> list[str]:
    """Return the report of a successful demonstration as lines; ``names``: of nodes by address."""
    slow, shares = training["slow_link"], training["shares"]
    shared = ", ".join(f"{share or 0:.0%} {part}" for part, share in shares.items())
    return [
        f"a payload had {training['update_bytes'] / 1000:.0f} kB on the wire, "
        f"{training['model_bytes'] / max(1, training['update_bytes']):.0f} times less than the model; of "
        f"{training['delivered']} payloads {training['joined']} were aggregated, robustly",
        f"{names[slow['provider']]}, on {link_mbps:g} Mbit/s, delivered {slow['units']} units, {slow['late']} of them "
        f"late; {slow['share_transfer']:.0%} of its time were transfers. {_slow_line(slow)}",
        _late_line(training["late"], names),
        _leaver_line(training["leaver"], names),
        f"{training['tokens_per_second']} tokens/s, {training['share_of_ideal'] or 0:.0%} of the same nodes in one "
        f"place ({shared}; reported by the nodes)",
    ]


def _slow_line(slow: Mapping[str, Any]) -> str:
    rate = slow["bytes_per_second"]
    measured = "an unmeasured rate" if rate is None else f"{rate / 1000:.0f} kB/s measured"
    less = sorted({top_k for top_k in slow["told"] if top_k < slow["asked_of_others"]}, reverse=True)
    if not less:
        return (
            f"With {measured} and units of {slow['seconds_per_unit']:.1f} s on this busy machine, a whole payload of "
            f"{slow['whole_bytes']} bytes fits 1/20 of a unit's time, so the market assigned all entries"
        )
    return (
        f"With {measured} and units of {slow['seconds_per_unit']:.1f} s the market assigned "
        f"{' or '.join(map(str, less))} of {CHUNK} entries in {sum(k in less for k in slow['told'])} of them: "
        f"{slow['least_bytes']} bytes instead of {slow['whole_bytes']}. Each payload matches its node's commitment"
    )


def _late_line(late: Mapping[str, Any], names: Mapping[str, str]) -> str:
    [joined] = late["joined"]
    return (
        f"{names[late['provider']]} was delayed between its commitment and its upload: round {late['round'] + 1} "
        f"closed without its payload, which was aggregated in round {joined['round'] + 1} at "
        f"{joined['weight'] / joined['weight_one']:.2f} of the full weight, and is paid in full"
    )


def _leaver_line(absent: Mapping[str, Any], names: Mapping[str, str]) -> str:
    first = absent["caught_up"]
    updates = "the update" if first["updates"] == 1 else f"{first['updates']} updates"
    return (
        f"{names[absent['provider']]} left after round {absent['left_after']} "
        f"({', '.join(absent['lost']) or 'between two units'}), returned and delivered {absent['delivered_since']} "
        f"more units. For the missed rounds it fetched {updates}: "
        f"{first['update_bytes']} bytes instead of the model's {first['model_bytes']}"
    )
