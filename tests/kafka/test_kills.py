"""`helios run` of a topic, killed again and again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from helios import Catalog
from tests.kafka.conftest import Topics, numbered

pytestmark = pytest.mark.jars("kafka")

RECORDS = 400
KILLS = 3


def rows(folder: Path) -> Counter[tuple[Any, ...]]:
    catalog = Catalog.local(path=folder / ".helios")
    if not catalog.exists("a.t"):
        return Counter()
    found = catalog.load("a.t").iceberg.scan().to_arrow()
    return Counter(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def test_killed_runs_lose_no_record_and_double_none(topics: Topics, tmp_path: Path) -> None:
    name = topics.make(partitions=2)
    for partition in (0, 1):
        topics.send(name, numbered(0, RECORDS), partition)
    topics.transaction(name, numbered(0, 5), "abort", 1)
    (tmp_path / "pipeline.py").write_text(
        dedent(f"""
            from helios import Iceberg, Kafka

            records = (
                Kafka.source("{name}")
                .servers("{topics.broker.servers}")
                .value("json", schema="id bigint")
                .metadata("partition", "offset")
                .incremental(poll=0.1, max_rows=60)
                >> Iceberg.sink("a.t").exactly_once()
            )
        """)
    )
    command = [sys.executable, "-m", "helios", "run", "pipeline.py"]
    for _ in range(KILLS):
        before = sum(rows(tmp_path).values())
        run = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True)
        until = time.monotonic() + 120
        while sum(rows(tmp_path).values()) <= before and run.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert run.poll() is None
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    done = subprocess.run([*command, "--once"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(tmp_path) == Counter((partition, offset) for partition in (0, 1) for offset in range(RECORDS))
