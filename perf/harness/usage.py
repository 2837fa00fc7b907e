"""What a process and its children use, from Linux's /proc: processor time, memory at its peak, bytes written."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
MEMORY = re.compile(r"^(PPid|VmPeak|VmSize|VmHWM):\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Usage:
    """What a contender used in a round.

    Attributes:
        seconds: From the call to its end.
        cpu: Seconds of processor time, of all its processes.
        memory: The peak of its processes' resident memory, in bytes; each process's own peak, added up.
        written: Bytes that went to storage.
    """

    seconds: float
    cpu: float
    memory: int
    written: int


class Meter:
    """Reads what a process and all below it have used.

    Args:
        pid: The topmost process.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._peak = 0

    def reset_peak(self) -> None:
        """Forgets the peaks so far (`proc(5)`, clear_refs)."""
        self._peak = 0
        for pid in self._tree():
            _write(pid, "clear_refs", "5")

    def totals(self) -> tuple[float, int]:
        """Processor time in seconds and bytes written so far, with those of children that have ended."""
        cpu, written = 0.0, 0
        for pid in self._tree():
            fields = _read(pid, "stat").rpartition(")")[2].split()
            cpu += sum(map(int, fields[11:15])) / TICKS
            told = re.search(r"^write_bytes: (\d+)", _read(pid, "io"), re.MULTILINE)
            written += int(told.group(1)) if told else 0
        return cpu, written

    def peak(self) -> int:
        """The resident memory at its peak since `reset_peak`, in bytes."""
        self.look()
        return self._peak

    def look(self) -> None:
        """Notes the peak of the processes that there are now."""
        self._peak = max(self._peak, memory_of({pid: _read(pid, "status") for pid in self._tree()}))

    def _tree(self) -> list[int]:
        found, waiting = [], [self.pid]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            for task in _tasks(pid):
                waiting += map(int, _read(pid, f"task/{task}/children").split())
        return found


def memory_of(told: Mapping[int, str]) -> int:
    """The peaks of the resident memory of processes together, in bytes.

    Java starts a process by one that has Java's own memory until it is another program (`vfork(2)`): it counts once.

    Args:
        told: By its id what the system tells of each process (`proc(5)`, status).
    """
    found = {pid: {key: int(value) for key, value in MEMORY.findall(text)} for pid, text in told.items()}

    def shared(memory: Mapping[str, int]) -> bool:
        parent = found.get(memory.get("PPid", 0), {})
        return all(memory.get(key) == parent.get(key) for key in ("VmPeak", "VmSize", "VmHWM"))

    return sum(memory.get("VmHWM", 0) << 10 for memory in found.values() if not shared(memory))


def _tasks(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _read(pid: int, name: str) -> str:
    """A file of a process, or nothing: it may end at any time."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def _write(pid: int, name: str, text: str) -> None:
    try:
        Path(f"/proc/{pid}/{name}").write_text(text)
    except (FileNotFoundError, ProcessLookupError):
        return
