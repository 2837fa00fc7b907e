"""`helios backfill` as a process beside `helios run`, killed with `kill -9` and started again: every row once."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path

import pytest

from helios import Catalog

pytestmark = pytest.mark.promise("backfill")

FIRST = date(2026, 1, 1)


class Lake:
    """A folder of files that come in, and the rows of all of them."""

    by = "day"
    script = """
from helios import Files, Iceberg, with_columns

rows = Files.source("in", format="json", schema="id bigint, day string").incremental(poll=1)
pipeline = rows >> with_columns(value="id * FACTOR") >> Iceberg.sink("a.t").partition_by("day")
"""

    def __init__(self, folder: Path, days: int, seed: int) -> None:
        self.folder, self.days, self.chance = folder, days, random.Random(seed)
        self.rows: dict[int, str] = {}
        (folder / "in").mkdir()
        for name, factor in (("old", "2"), ("new", "3")):
            (folder / f"{name}.py").write_text(self.script.replace("FACTOR", factor))

    def land(self, count: int) -> None:
        """A file with rows of any days."""
        ids = range(len(self.rows), len(self.rows) + count)
        days = {i: str(FIRST + timedelta(days=self.chance.randrange(self.days + 4))) for i in ids}
        self.write(f"{ids.start}", [{"id": i, "day": day} for i, day in days.items()])
        self.rows |= days

    def write(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        draft = self.folder / f"{name}.tmp"
        draft.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        draft.rename(self.folder / "in" / f"{name}.json")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "helios", *arguments]
        return subprocess.Popen(
            command, cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=1
        )

    def ended(self, *arguments: str) -> int:
        """Runs a command to its end."""
        with self.start(*arguments) as running:
            running.communicate()
            return running.returncode

    def backfill(self) -> subprocess.Popen[str]:
        until = FIRST + timedelta(days=self.days)
        return self.start("backfill", "new.py", "--where", f"day < '{until}'", "--by", self.by)

    @contextmanager
    def coming(self, script: str) -> Iterator[None]:
        """A running pipeline, for which rows come all the time."""
        live, ended = self.start("run", script), threading.Event()

        def land() -> None:
            while not ended.wait(2):
                self.land(3)

        thread = threading.Thread(target=land)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            live.send_signal(signal.SIGTERM)
            told, _ = live.communicate(timeout=120)
            assert live.returncode == 0, told

    def values(self) -> dict[int, int]:
        """The value of each id, which is there once."""
        arrow = Catalog.local(path=self.folder / ".helios").load("a.t").iceberg.scan().to_arrow()
        ids, values = arrow["id"].to_pylist(), arrow["value"].to_pylist()
        assert len(ids) == len(set(ids))
        return dict(zip(ids, values, strict=True))


LENGTHS = [pytest.param(8, 2, id="short"), pytest.param(365, 20, id="long", marks=pytest.mark.slow)]


def killed(lake: Lake, kills: int) -> None:
    """Runs a backfill, killed at random and started again, to its end; a second one beside it is refused."""
    for kill in range(kills + 1):
        with lake.backfill() as running:
            assert running.stdout is not None
            after = lake.chance.randrange(1, max(3, lake.days // kills))  # slices until it is killed
            if lake.by == "month" and kill < kills:  # fewer slices than kills, some of which come before the first one
                after = lake.chance.choice((1, 1, 2, kills)) if kill else 3
                if after == kills:
                    threading.Timer(lake.chance.uniform(2, 15), running.kill).start()
            told = []
            for line in running.stdout:
                told.append(line)
                if not kill and " 1 of " in f" {line}" and lake.days > 100:  # many slices are left
                    with lake.backfill() as second:
                        refused, _ = second.communicate()
                    assert second.returncode, refused
                    assert "is running already" in refused
                after -= " of " in line and " rows " in line
                if kill < kills and after <= 0:
                    threading.Event().wait(lake.chance.random())
                    running.kill()
                    break
            code = running.wait()
        ends = {-signal.SIGKILL} if kill < kills else {0}
        ends |= {0} if lake.by == "month" else set()  # it was faster: the next one finds nothing to repair
        assert code in ends, "".join(told)


@pytest.mark.timeout(5000)
@pytest.mark.parametrize(("days", "kills"), LENGTHS)
def test_kills_beside_a_running_pipeline(tmp_path: Path, days: int, kills: int) -> None:
    lake = Lake(tmp_path, days, seed=7)
    lake.land(days * 6)
    assert lake.ended("run", "old.py", "--once") == 0
    before = dict(lake.rows)
    with lake.coming("old.py"):
        killed(lake, kills)
    assert lake.ended("run", "old.py", "--once") == 0
    until, values = str(FIRST + timedelta(days=days)), lake.values()
    assert set(values) == set(lake.rows)
    untouched = {i for i, day in lake.rows.items() if day >= until}
    assert {values[i] // max(i, 1) for i in untouched} <= {0, 2}
    assert {i for i in before.keys() - untouched if values[i] != 3 * i} == set()
    with lake.backfill() as done:  # what came behind its slice was written by the steps of the running pipeline
        done.communicate()
    assert done.returncode == 0
    assert lake.values() == {i: i * (2 if i in untouched else 3) for i in lake.rows}
    print(f"{days} days, {kills} kills, {len(before):,} rows before and {len(lake.rows) - len(before):,} meanwhile")


class UpsertLake(Lake):
    """Rows of keys that come in any order; by the old script, the order of every fifth row is too high."""

    script = """
from helios import Files, Iceberg, month, with_columns

rows = Files.source("in", format="json", schema="id bigint, day date, ord bigint, value bigint").incremental(poll=1)
pipeline = (
    rows
    >> with_columns(ord="ord + if(FACTOR = 2 AND value % 5 = 0, 100000000, 0)", value="value * FACTOR")
    >> Iceberg.sink("a.t").partition_by(month("day")).upsert("id", order_by="ord")
)
"""

    def __init__(self, folder: Path, days: int, seed: int) -> None:
        super().__init__(folder, days, seed)
        self.by = "month" if days > 100 else "day"
        self.came: list[tuple[int, int, int]] = []  # key, order and value, oldest first

    def land(self, count: int) -> None:
        first = len(self.came)
        orders = self.chance.sample(range(1000), count % 997)
        for i, order in enumerate(orders, first):
            self.came.append(
                (self.chance.randrange(self.days * 3), order * 1000 + i % 1000, self.chance.randrange(1000))
            )
        self.write(f"{first}", [self.line(*row) for row in self.came[first:]])

    def line(self, id: int, order: int, value: int) -> dict[str, object]:
        return {"id": id, "day": self.day(id), "ord": order, "value": value}

    def day(self, id: int) -> str:
        return str(FIRST + timedelta(days=id % (self.days + 4)))

    def wanted(self, old: int) -> dict[int, int]:
        """The value of each key: the newest row by its order, which the old script has made of the first rows."""
        until = str(FIRST + timedelta(days=self.days))
        newest: dict[int, tuple[int, int]] = {}
        for i, (id, right, value) in enumerate(self.came):
            is_old = i < old and self.day(id) >= until
            order = right + (100_000_000 if is_old and value % 5 == 0 else 0)
            if id not in newest or order >= newest[id][0]:
                newest[id] = order, value * (2 if is_old else 3)
        return {id: value for id, (_, value) in newest.items()}


@pytest.mark.timeout(5000)
@pytest.mark.parametrize(("days", "kills"), LENGTHS)
def test_kills_beside_a_running_upsert(tmp_path: Path, days: int, kills: int) -> None:
    """Each key has its newest row, also where a batch beside the repair has dropped it as late beside a wrong one."""
    lake = UpsertLake(tmp_path, days, seed=11)
    for _ in range(3):
        lake.land(min(900, days * 4))
        assert lake.ended("run", "old.py", "--once") == 0
    before = len(lake.came)
    with lake.coming("new.py"):
        killed(lake, kills)
    assert lake.ended("run", "new.py", "--once") == 0
    assert lake.values() == lake.wanted(before)
    print(f"{days} days, {kills} kills, {before:,} rows before and {len(lake.came) - before:,} meanwhile")


def test_a_stopped_backfill_goes_on(tmp_path: Path) -> None:
    """Ctrl-C ends it after the running slice, and a second one at once; the same command goes on with the next."""
    lake = Lake(tmp_path, 6, seed=3)
    lake.land(40)
    assert lake.ended("run", "old.py", "--once") == 0

    def stopped(*signals: signal.Signals) -> tuple[int, str]:
        with lake.backfill() as running:
            assert running.stdout is not None
            told = [next(line for line in running.stdout if " of " in line and " replaced " in line)]
            for number in signals:
                running.send_signal(number)
                told.append(next(iter(running.stdout), "") if number is not signals[-1] else "")
            told += running.stdout
            return running.wait(), "".join(told)

    code, told = stopped(signal.SIGINT)
    assert code == 0, told
    assert "stopping after the running slice (press Ctrl-C again to stop at once)" in told
    assert "local.a.t: stopped; 2 of 6 slices are repaired, and 4 slices left. Continue with the next one: " in told
    assert "helios backfill new.py --where " in told
    code, told = stopped(signal.SIGTERM, signal.SIGINT)
    assert code == 128 + signal.SIGINT, told
    with lake.backfill() as running:
        told, _ = running.communicate()
    assert running.returncode == 0, told
    assert " more before the stop; " in told
    until = str(FIRST + timedelta(days=6))
    assert lake.values() == {i: i * (3 if day < until else 2) for i, day in lake.rows.items()}
