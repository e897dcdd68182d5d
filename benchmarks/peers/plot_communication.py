"""Loss-bytes curve of ``benchmarks.communication``, in an environment with matplotlib.

``python -m benchmarks.peers.plot_communication PICTURE.png``, with the report on standard input.
"""

import json
import sys

import matplotlib.pyplot as plt

OURS = ("at_20x", "at_70x", "default", "at_1000x", "at_4000x")
PEERS = ("ddp_adamw", "ddp_muon", "powersgd_1", "powersgd_4", "diloco", "torchft_diloco", "sparseloco")


def main(picture: str) -> None:
    rows = {row["name"]: row for row in json.load(sys.stdin)["rows"]}
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for panel, way in zip(panels, ("up", "down"), strict=True):
        measured = [name for name in OURS if f"{name}_loss" in rows]
        points = [(rows[f"{name}_{way}_ratio"]["value"], rows[f"{name}_loss"]) for name in measured]
        panel.plot([ratio for ratio, _ in points], [loss["value"] for _, loss in points], "o-", label="ours")
        for ratio, loss in points:
            panel.vlines(ratio, loss["min"], loss["max"], color="C0")
        for number, name in enumerate(name for name in PEERS if f"{name}_loss" in rows):
            ratio, loss = rows[f"{name}_{way}_ratio"]["value"], rows[f"{name}_loss"]
            panel.plot(ratio, loss["value"], "s", color=f"C{number + 1}", label=name)
            panel.vlines(ratio, loss["min"], loss["max"], color=f"C{number + 1}")
        panel.set_xscale("log")
        panel.set_xlabel(f"times fewer bytes {way}")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("validation loss, nats per byte")
    panels[1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(picture, dpi=90)


if __name__ == "__main__":
    main(sys.argv[1])
