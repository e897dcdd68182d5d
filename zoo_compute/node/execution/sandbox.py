"""Sandbox of the training child: no network, no other programs, bounded memory and time.

A task is a declarative specification for our own library, so the sandbox need not resist native code. It limits
mistakes: a recursive parser, an oversized specification, a library that opens connections.
"""

import contextlib
import ctypes
import fcntl
import os
import re
import resource
import socket
import struct
import sys
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_PR_SET_NO_NEW_PRIVS = 38
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1

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
    "memoryerror",
)


def limit(memory_bytes: int) -> None:
    """Drop programs and Python's sockets permanently, bound memory and files."""
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # RLIMIT_DATA instead of address space: torch and CUDA reserve far more address space than they use.
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_refuse)


def is_allocation_failure(text: str) -> bool:
    """Return whether an error or a process's last output names a failed allocation."""
    return any(phrase in text.lower() for phrase in _ALLOCATION_FAILURES)


def memory_kills() -> int:
    """Return how many processes this machine's kernel has killed for memory since its start."""
    try:
        counters = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    found = re.search(r"^oom_kill (\d+)$", counters, re.MULTILINE)
    return int(found[1]) if found else 0


def release_memory() -> None:
    """Return freed memory to the system if the C library can (some 30 MB)."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def limit_processor_time(seconds: float) -> None:
    """Limit this process's CPU time, scaled with the cores, in case its parent dies."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds * (os.cpu_count() or 1)) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def leave_network(keep_loopback: bool = False) -> bool:
    """Move into an empty network namespace through a user namespace, which needs no privilege.

    Args:
        keep_loopback: give it a loopback device for the processes of a group, which are forked from this one. Where
            the kernel refuses that, the processes stay where they are and meet on the machine's loopback.

    Returns:
        True if the kernel removed the network.
    """
    if not keep_loopback:
        return _leave_network()
    trial = os.fork()
    if trial == 0:
        os._exit(0 if _leave_network() and _raise_loopback() else 1)
    return os.waitpid(trial, 0)[1] == 0 and _leave_network() and _raise_loopback()


def has_loopback() -> bool:
    """Return whether processes can meet on the machine's loopback device."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
            return True
    except OSError:
        return False


def _raise_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))
    except OSError:
        return False
    return True


def _leave_network() -> bool:
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
