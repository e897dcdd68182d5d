"""Environment classes of processors on which MKL ignores the profile's branch."""

from pathlib import Path

import pytest

from training_gym.runtime.profile import CPU
from training_gym.units import environment_class as classes


def test_class_names_processor_unless_intel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpu_info = tmp_path / "cpuinfo"
    monkeypatch.setattr(classes, "CPU_INFO", cpu_info)
    monkeypatch.setattr(classes, "probe", lambda _: bytes(32))

    def class_of(vendor: str, model: int) -> str:
        one = f"vendor_id\t: {vendor}\ncpu family\t: 25\nmodel\t\t: {model}\nmodel name\t: {vendor} Processor\n"
        cpu_info.write_text(f"{one}\n{one}")
        return classes.environment_class(CPU)

    intel = class_of("GenuineIntel", 85)
    assert class_of("GenuineIntel", 106) == intel
    assert len({intel, class_of("AuthenticAMD", 1), class_of("AuthenticAMD", 17)}) == 3
