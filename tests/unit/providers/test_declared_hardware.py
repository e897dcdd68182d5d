"""Readings of real machines against the tiers' published numbers."""

import shutil
import subprocess
from dataclasses import asdict
from types import SimpleNamespace

import psutil
import pytest

from market.domain.network import MAINNET
from market.domain.nodes.placement import Node, Requirements, has_memory, insufficient_key
from market.providers.node_problems import node_problems
from training_gym.runtime.memory import Memory
from training_gym.runtime.profile import CPU, CUDA
from zoo_compute.node.execution import hardware

GIB = 1 << 30
READINGS = {  # GB as sold: MiB of nvidia-smi, GiB of torch
    ("A100 40GB", 40): (40_960, 39.39),
    ("A100 40GB, driver 450", 40): (40_537, 39.39),
    ("A100 80GB", 80): (81_920, 79.14),
    ("A100 80GB, driver 470", 80): (81_251, 79.14),
    ("H100 80GB", 80): (81_559, 79.1),
    ("H200", 141): (143_771, 139.72),
    ("L40S", 48): (46_068, 44.4),
    ("A10", 24): (23_028, 22.19),
    ("L4", 24): (23_034, 22.03),
    ("RTX 4090", 24): (24_564, 23.64),
    ("RTX 3090", 24): (24_576, 23.68),
    ("RTX 3090, driver 510", 24): (24_268, 23.68),
    ("RTX 5090", 32): (32_607, 31.36),
}
HOSTS_GIB = {16: 15.3, 32: 31.1, 256: 251.0, 512: 503.0, 1_024: 1_007.0}  # GB as sold: GiB of MemTotal in /proc/meminfo
MACHINES = [
    ("bronze", "NVIDIA A100-SXM4-40GB", 4, "40960", 256),
    ("bronze", "NVIDIA A100-PCIE-40GB", 4, "40537", 256),
    ("silver", "NVIDIA A100-SXM4-80GB", 8, "81920", 512),
    ("silver", "NVIDIA A100-SXM4-80GB", 8, "81251", 512),
    ("gold", "NVIDIA H100 80GB HBM3", 8, "81559", 1_024),
    ("gold", "NVIDIA H200", 8, "143771", 1_024),
    ("iron", "NVIDIA GeForce RTX 4080", 1, "16376", 16),
    ("iron", "NVIDIA GeForce RTX 3090", 1, "24268", 32),
]


def detect_as(
    monkeypatch: pytest.MonkeyPatch, gpu: str, count: int, reported: str, ram_bytes: int, gbps: int = 400
) -> dict[str, object]:
    """Return the declaration of a node with these readings."""
    listed = f"{gpu}, {reported}\n" * count
    monkeypatch.setattr(shutil, "which", lambda _: "nvidia-smi")
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_options: SimpleNamespace(stdout=listed))
    monkeypatch.setattr(hardware, "measured", lambda: Memory(ram_bytes, ram_bytes))
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"ib0": SimpleNamespace(isup=True, speed=gbps * 1_000)})
    return asdict(hardware.detect())


@pytest.mark.parametrize(("tier", "gpu", "count", "reported", "sold_gb"), MACHINES)
def test_machine_of_table_meets_its_tier(
    tier: str, gpu: str, count: int, reported: str, sold_gb: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = detect_as(monkeypatch, gpu, count, reported, round(HOSTS_GIB[sold_gb] * GIB))
    assert insufficient_key(declared, MAINNET.tier(tier)) is None
    assert declared["gpu_count"] == count


@pytest.mark.parametrize(
    ("tier", "gpu", "reported", "host_gib", "gbps", "key"),
    [
        ("silver", "NVIDIA A100-SXM4-40GB", "40960", 503.0, 200, "gpu_memory_gb"),
        ("bronze", "NVIDIA GeForce RTX 4090", "24564", 251.0, 100, "gpu_memory_gb"),
        ("silver", "NVIDIA A100-SXM4-80GB", "81920", 251.0, 200, "ram_gb"),
        ("gold", "NVIDIA H100 80GB HBM3", "81559", 503.0, 400, "ram_gb"),
        ("iron", "NVIDIA GeForce RTX 3080", "12288", 31.1, 1, "gpu_memory_gb"),
        ("iron", "NVIDIA GeForce RTX 4090", "24564", 7.6, 1, "ram_gb"),
        ("gold", "NVIDIA H100 80GB HBM3", "81559", 1_007.0, 200, "network_gbps"),
    ],
)
def test_smaller_machine_does_not_meet_tier(
    tier: str, gpu: str, reported: str, host_gib: float, gbps: int, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = detect_as(monkeypatch, gpu, 8, reported, round(host_gib * GIB), gbps)
    assert insufficient_key(declared, MAINNET.tier(tier)) == key


@pytest.mark.parametrize(("model", "sold_gb"), READINGS)
def test_readings_of_gpus_count_as_sold(model: str, sold_gb: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mib, torch_gib = READINGS[model, sold_gb]
    declared = detect_as(monkeypatch, model, 1, str(mib), 64 * GIB)["gpu_memory_gb"]
    assert isinstance(declared, float)
    node = Node("node", "eu", "class", gpu_memory_gb=declared)
    assert Requirements(min_gpu_memory_gb=sold_gb).accepts(node)
    assert has_memory(torch_gib * GIB / 1e9, sold_gb)
    assert not has_memory(declared, sold_gb * 1.25)


def test_gpu_with_unified_memory_declares_main_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = detect_as(monkeypatch, "NVIDIA GB10", 1, "[N/A]", 127_600_748 * 1_024)
    assert declared["gpu_memory_gb"] == declared["ram_gb"] == 130.7
    assert declared["gpu_count"] == 1


@pytest.mark.parametrize(("count", "processes"), [(0, 1), (1, 1), (4, 4), (16, 8)])
def test_processes_follow_gpus_up_to_eight(count: int, processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "detect", lambda: hardware.Hardware("H200", count, 141.0, 512.0, 1.0))
    assert (hardware.processes(CUDA), hardware.processes(CPU)) == (processes, 1)


@pytest.mark.parametrize(
    ("declared", "tier", "codes"),
    [
        ({}, None, []),  # an earlier version's node
        ({"processes": 4, "network_removed": True}, "bronze", []),
        ({"processes": 2, "network_removed": True}, "bronze", ["few_processes"]),
        ({"processes": 1, "network_removed": True}, "iron", []),
        ({"processes": 1, "network_removed": False}, "bronze", ["network_not_removed", "few_processes"]),
    ],
)
def test_declared_processes_give_problems(declared: dict[str, object], tier: str | None, codes: list[str]) -> None:
    found = list(node_problems(declared, None if tier is None else MAINNET.tier(tier)))
    assert [problem.code for problem in found] == codes
    assert all(problem.remedy for problem in found)
