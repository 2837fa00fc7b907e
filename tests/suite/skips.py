"""The skips that are known, each with its reason; `--strict-skips` makes any other skip a failure.

A test that is skipped proves nothing, and a summary hides that well: what may be skipped is written down here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Named:
    """A skip that is known.

    Attributes:
        tests: What the ids of the skipped tests begin with.
        message: What the skip says, as a regular expression.
        because: Why it is right to skip.
    """

    tests: str
    message: str
    because: str


SERVICE = "service not to be had: "

NAMED = (
    Named(
        "tests/unit/cli/test_doctor.py::",
        "root may write everywhere",
        "The test takes a permission away, which root does not need; CI runs as root.",
    ),
    Named(
        "tests/unit/metrics/test_endpoint.py::",
        "this machine has no IPv6",
        "The test listens on ::1.",
    ),
    Named(
        "tests/streaming/test_webhook_disk.py::",
        "no file system can be mounted here",
        "The test fills a disk of its own, which root alone can mount; a limit of file sizes stands for it.",
    ),
    Named(
        "tests/page/",
        "browser not to be had: there is no chromium with chromedriver on PATH",
        "A machine without Chromium has no page; the server and its facts are tested without.",
    ),
    Named(
        "tests/page/",
        "axe-core not to be had: ",
        "It comes from npm at test time, and is in nobody's lock.",
    ),
    Named(
        "tests/matrix/test_table.py::",
        "the page is written at the end of this run",
        "`make matrix` writes the page that the test compares.",
    ),
    Named(
        "tests/matrix/test_native.py::",
        "nor the emulators of the others refuse a key|what is told of S3 holds for the others",
        "Of the matrix's storages MinIO alone refuses keys; it stands for all of them.",
    ),
    Named(
        "tests/",
        f"{SERVICE}(azurite|debezium|gcs|hive|kafka|nessie|postgres): not installed",
        "MinIO and the REST catalog, which most tests of servers need, must be there; another one may not be had. "
        "Debezium takes 875 MB, and is `make services`'s alone.",
    ),
    Named(
        "tests/",
        f"{SERVICE}(minio|gcs): it is built from Go source, and there is no `go` on PATH",
        "A machine without Go has no S3 and no GCS.",
    ),
    Named(
        "tests/",
        f"{SERVICE}azurite: (there is no `node` on PATH|it is a Node program, and there is no `npm` on PATH)",
        "A machine without Node has no ADLS.",
    ),
    Named(
        "tests/",
        f"{SERVICE}(nessie|debezium): it needs Java 21 or later",
        "Spark's own Java is 17 here.",
    ),
)


def named(nodeid: str, message: str) -> Named | None:
    """The row that a skip is named by.

    Examples:
        >>> named("tests/unit/cli/test_doctor.py::test_a", "root may write everywhere").tests
        'tests/unit/cli/test_doctor.py::'
        >>> named("tests/matrix/test_promises.py::test_a[rest-s3]", "service not to be had: minio: not installed")
    """
    return next((row for row in NAMED if nodeid.startswith(row.tests) and re.search(row.message, message)), None)
