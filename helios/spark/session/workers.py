"""The daemon of pyspark's Python workers, changed so that it and its workers ignore a SIGTERM.

systemd sends a SIGTERM to all processes of a unit. The run then finishes its batch, and the batch needs the workers.
The workers end with the JVM, because they read from a pipe of the JVM. `spark.python.daemon.module` names this module.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable
from types import FrameType

from pyspark import daemon

Handler = Callable[[int, FrameType | None], object] | int | None


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """A handler that does nothing. SIG_IGN is no alternative: processes that user functions start would inherit it."""


class _Signals:
    """A substitute for the module `signal` that pyspark's daemon and its workers use."""

    def __getattr__(self, name: str) -> object:
        return getattr(signal, name)

    def signal(self, number: int, handler: Handler) -> object:
        return signal.signal(number, _do_nothing if number == signal.SIGTERM else handler)


if __name__ == "__main__":
    gc.freeze()  # a worker collects garbage after each task, and need not search the imported modules
    daemon.signal = _Signals()  # type: ignore[attr-defined, assignment]
    daemon.manager()  # type: ignore[no-untyped-call]
