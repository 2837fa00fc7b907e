"""pyspark's daemon of Python workers, which keeps running on a SIGTERM to all processes of a service.

systemd sends a SIGTERM to all processes of a unit. The run ends after its batch, and the batch needs the workers. The
workers end with the JVM, whose pipe they read. Spark runs this module as `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable
from types import FrameType

from pyspark import daemon

Handler = Callable[[int, FrameType | None], object] | int | None


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """A handler that does nothing; processes that the user's functions start would inherit an ignored signal."""


class _Signals:
    """The module `signal`, as pyspark's daemon and its workers see it."""

    def __getattr__(self, name: str) -> object:
        return getattr(signal, name)

    def signal(self, number: int, handler: Handler) -> object:
        return signal.signal(number, _do_nothing if number == signal.SIGTERM else handler)


if __name__ == "__main__":
    gc.freeze()  # a worker collects garbage after each task; imported modules need not be searched
    daemon.signal = _Signals()  # type: ignore[attr-defined, assignment]
    daemon.manager()  # type: ignore[no-untyped-call]
