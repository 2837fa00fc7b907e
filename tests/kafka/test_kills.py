"""`helios run` of a topic, killed again and again, and its broker: the short forms of `perf/kafka.py`."""

from __future__ import annotations

import json
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

pytestmark = [pytest.mark.jars("kafka"), pytest.mark.promise("kafka", "kills")]

COMMAND = Path(__file__).parents[2] / "perf" / "kafka.py"
RECORDS = {1: 200, 3: 400}
"""Of each partition, by the number of kills: what is left behind the last one is read in batches of 60."""


def rows(folder: Path) -> Counter[tuple[Any, ...]]:
    catalog = Catalog.local(path=folder / ".helios")
    if not catalog.exists("a.t"):
        return Counter()
    found = catalog.load("a.t").iceberg.scan().to_arrow()
    return Counter(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def await_more(folder: Path, run: subprocess.Popen[bytes]) -> None:
    """Waits until a run has written more."""
    before, until = sum(rows(folder).values()), time.monotonic() + 120
    while sum(rows(folder).values()) <= before and run.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert run.poll() is None


@pytest.mark.parametrize("kills", [pytest.param(1, marks=pytest.mark.landing), 3])
def test_killed_runs_lose_no_record_and_double_none(topics: Topics, tmp_path: Path, kills: int) -> None:
    name = topics.make(partitions=2)
    for partition in (0, 1):
        topics.send(name, numbered(0, RECORDS[kills]), partition)
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
    for kill in range(kills):
        run = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True)
        await_more(tmp_path, run)
        if kill == kills // 2:  # the broker too
            topics.broker.kill()
            topics.broker.start()
            await_more(tmp_path, run)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    done = subprocess.run([*command, "--once"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(tmp_path) == Counter((partition, offset) for partition in (0, 1) for offset in range(RECORDS[kills]))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_records_that_arrive_while_run_and_broker_are_killed(tmp_path: Path) -> None:
    given = ["--records", "20000", "--kills", "3", "--restarts", "2", "--folder", str(tmp_path)]
    done = subprocess.run([sys.executable, str(COMMAND), *given], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["records"], told["kills"], told["lost"], told["twice"]) == (20_000, 3, 0, 0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_race_beside_the_job_by_hand_holds_the_same_rows(tmp_path: Path) -> None:
    given = ["--speed", "--records", "20000", "--rounds", "1", "--folder", str(tmp_path)]
    done = subprocess.run([sys.executable, str(COMMAND), *given], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in every round all targets held the same 20,000 rows" in done.stdout
