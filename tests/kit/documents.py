"""Documents with one changed value."""

import copy
from typing import Any


def changed(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """Return a copy whose entry at ``path`` is ``value``, or is absent if that is ``...``."""
    copied = copy.deepcopy(document)
    *parents, last = path
    inner = copied
    for parent in parents:
        inner = inner[parent]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return copied
