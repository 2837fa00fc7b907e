"""Runs a command until it ends, or until standard input does: no server outlives the process that started it.

Started as `python guard.py PID_FILE COMMAND...`. Standard input is a pipe whose other end only the starter holds, so it
ends even when the starter is killed. The command runs in a process group of its own, which ends with it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from types import FrameType


def main(pid_file: str, command: list[str]) -> int:
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    told_to_stop = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal told_to_stop
        told_to_stop = True

    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGTERM, stop)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
    with open(pid_file, "w", encoding="ascii") as file:
        file.write(str(child.pid))
    watched = [sys.stdin.fileno(), awake]
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if told_to_stop:
            told_to_stop = False
            os.kill(child.pid, signal.SIGTERM)
        readable, _, _ = select.select(watched, [], [])
        if awake in readable:
            os.read(awake, 4096)
        elif not os.read(sys.stdin.fileno(), 1):
            break
    # Before the child is reaped, its group's number cannot be another's.
    os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


if __name__ == "__main__":
    sys.exit(max(0, main(sys.argv[1], sys.argv[2:])))
