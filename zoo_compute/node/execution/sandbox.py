"""Sandbox of the training child: no network, no other programs, bounded memory and time.

A task is a declarative specification for our own library, so the sandbox need not resist native code. It limits
mistakes: a recursive parser, an oversized specification, a library that opens connections.
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

_ALLOCATION_FAILURES = (
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "out of memory",
    "std::bad_alloc",
)


def enter(memory_bytes: int) -> bool:
    """Drop network and programs permanently, bound memory and files; before any thread.

    Returns:
        True if the kernel removed the network too; otherwise only Python's audit hook refuses it.
    """
    isolated = _leave_network()
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # RLIMIT_DATA instead of address space: torch and CUDA reserve far more address space than they use.
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_refuse)
    return isolated


def is_allocation_failure(text: str) -> bool:
    """Return whether an error or a process's last output names a failed allocation."""
    return any(phrase in text.lower() for phrase in _ALLOCATION_FAILURES)


def release_memory() -> None:
    """Return freed memory to the system if the C library can (some 30 MB)."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def limit_processor_time(seconds: float) -> None:
    """Limit this process's CPU time, scaled with the cores, in case its parent dies."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds * (os.cpu_count() or 1)) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def _leave_network() -> bool:
    """Move into an empty network namespace through a user namespace, which needs no privilege."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    maps = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
    # Only names: AppArmor can allow the namespace and refuse these; the network is removed all the same.
    with contextlib.suppress(OSError):
        for file, content in maps:
            with open(f"/proc/self/{file}", "w") as mapping:
                mapping.write(content)
    return True


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in _REFUSED_EVENTS:
        raise PermissionError(f"{event} is not allowed in the training process")
