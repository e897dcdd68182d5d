"""All loops are compiled beforehand if requested."""

import subprocess
import sys

_CHECK = """
from training_gym.runtime import compiled

known, used, plain = set(), set(), compiled.compiled

def watched(loop):
    name, call = f"{loop.__module__}.{loop.__name__}", plain(loop)
    known.add(name)
    def noting(*arguments):
        used.add(name)
        return call(*arguments)
    return noting

compiled.compiled = watched
from training_gym import warm_up  # only now: its modules decorate their loops

warm_up.compile_all()
assert len(known) > 20, known
print(*sorted(known - used))
"""


def test_every_loop_is_compiled_beforehand() -> None:
    done = subprocess.run([sys.executable, "-c", _CHECK], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
