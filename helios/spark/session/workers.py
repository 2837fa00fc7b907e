"""pyspark's daemon of Python workers, which keeps running on a SIGTERM to all processes of a service.

systemd sends it to all of a unit's processes; the run ends after its batch, and the batch needs the workers. They end
with the JVM, whose pipe they read. Run by Spark as `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable
from types import FrameType

from pyspark import daemon

Handler = Callable[[int, FrameType | None], object] | int | None


def _go_on(number: int, frame: FrameType | None) -> None:
    """A handler, where ignoring the signal would go on to what the user's functions start."""


class _Signals:
    """The module `signal`, as pyspark's daemon and its workers see it."""

    def __getattr__(self, name: str) -> object:
        return getattr(signal, name)

    def signal(self, number: int, handler: Handler) -> object:
        return signal.signal(number, _go_on if number == signal.SIGTERM else handler)


if __name__ == "__main__":
    gc.freeze()  # a worker collects garbage after each task; what is imported is none
    daemon.signal = _Signals()  # type: ignore[attr-defined, assignment]
    daemon.manager()  # type: ignore[no-untyped-call]
