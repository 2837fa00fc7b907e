"""Which tests go to one worker together, and in which order: two workers, two sessions of Spark, no idle end."""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.conformance.cases import CASES

LONG_FIRST = (
    "tests/streaming/test_kills.py",
    "tests/streaming/test_life.py",
    "tests/streaming/test_webhook_kills.py",
    "tests/conformance/test_kills.py",
    "tests/integration/",
    "tests/compat/",
    "tests/streaming/",
    "tests/conformance/",
    "tests/cluster/",
    "tests/outage/",
    "tests/kafka/test_kills.py",
    "tests/kafka/",
    "tests/served/",
    "tests/services/",
    "tests/matrix/",
    "tests/suite/",
    "tests/unit/",
)
"""Where long tests are; within each, what has more tests comes first. Those of servers, which may still be built beside
the first tests, come later, and the short ones fill the end."""

_MODE = re.compile(rf"(?:^|-)({'|'.join(sorted(CASES, key=len, reverse=True))})(?:-|$)")


def scope(nodeid: str) -> str:
    """What stays on one worker: a file, a combination of the matrix, a write mode of the conformance suite.

    Examples:
        >>> scope("tests/streaming/test_append.py::test_a[1]")
        'tests/streaming/test_append.py'
        >>> scope("tests/matrix/test_promises.py::test_append[rest-local]")
        'tests/matrix/rest-local'
        >>> scope("tests/conformance/test_drivers.py::test_a[RuntimeException-upsert-history]")
        'tests/conformance/upsert-history'
    """
    file, _, test = nodeid.partition("::")
    parameters = test.partition("[")[2].rstrip("]")
    if file.startswith("tests/matrix/") and parameters:
        return f"tests/matrix/{parameters}"
    if file.startswith("tests/conformance/") and (mode := _MODE.search(parameters)):
        return f"tests/conformance/{mode[1]}"
    return file


class LongFirst(LoadScopeScheduling):
    """Gives each worker whole scopes, the long ones first: what a scope shares is made once."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=self._place), last=False)
        super()._assign_work_unit(node)

    def _place(self, name: str) -> tuple[int, int]:
        folder = next((i for i, start in enumerate(LONG_FIRST) if name.startswith(start)), len(LONG_FIRST))
        return folder, -len(self.workqueue[name])
