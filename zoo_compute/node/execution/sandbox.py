"""What the training child gives up before it touches a stranger's job: network, other programs, memory, time.

A task is a declarative specification run by our own library, so nothing here has to hold against native code. It holds
against a mistake: a parser that recurses, a specification that wants too much, a library that phones home.
"""

import contextlib
import ctypes
import os
import resource
import sys

_CLONE_NEWUSER = 0x10000000


_CLONE_NEWNET = 0x40000000


_PR_SET_NO_NEW_PRIVS = 38


_REFUSED_EVENTS = frozenset(
    {
        "socket.__new__",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "socket.gethostbyaddr",
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.fork",
        "os.forkpty",
    }
)


def enter(memory_bytes: int) -> bool:
    """Give up network and other programs for good, and bound memory and files. Call before any thread starts.

    Returns:
        Whether the kernel took the network away as well; where it forbids that, Python's audit hook alone refuses.
    """
    isolated = _leave_network()
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # Address space is no measure here: torch and CUDA reserve far more than they use. Data counts what is written.
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_refuse)
    return isolated


def give_back_memory() -> None:
    """Return freed memory to the system, where its C library can (some 30 MB after a probe, with glibc)."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def limit_processor_time(seconds: float) -> None:
    """Let the kernel end this process soon after ``seconds``, should nobody be left to time it.

    What it counts is processor time, of which threads side by side use up more than passes.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds * (os.cpu_count() or 1)) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def _leave_network() -> bool:
    """Move into an empty network namespace (through a user namespace, which needs no privilege)."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    maps = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
    # Only names: without them, as where AppArmor allows the namespace and refuses these, the network is gone as well.
    with contextlib.suppress(OSError):
        for file, content in maps:
            with open(f"/proc/self/{file}", "w") as mapping:
                mapping.write(content)
    return True


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in _REFUSED_EVENTS:
        raise PermissionError(f"{event} is not allowed in the training process")
