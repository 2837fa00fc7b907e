"""Drawn operations over two pipelines with one target and one quarantine: every row is accounted for, once.

One pipeline has a name, the other goes by its table's. A model knows the rows of each source, and which of them are
given up knowingly, as after a rollback that `--new-checkpoint` accepts. After each step no row is in the target and
the quarantine together twice, but for those of a replay that died and is not finished yet, and after each run that
says nothing all rows that were there are in one of them.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from helios import Pipeline, expect
from helios.catalog.names import TableName
from helios.errors import CheckpointError, HeliosError, InputError, LedgerError
from helios.spark.replay.replay import Replay
from helios.spark.run.rename_table import rename
from tests.suite.deaths import dies_at, dies_before_commit

pytestmark = [pytest.mark.promise("quarantine", "identity"), pytest.mark.sampled(1)]

NAMES = ("one", "two")


class Drawn:
    """Two pipelines, what they may hold, and the operations.

    Args:
        world: The tables.
        seed: Chooses the operations.
    """

    def __init__(self, world: Any, seed: int) -> None:
        self.world = world
        self.random = Random(seed)
        self.next_id = 1
        self.there: dict[str, set[int]] = {name: set() for name in NAMES}
        self.given_up: set[int] = set()
        self.done: list[str] = []
        self.target = "a.t"
        self.sources = {name: f"a.{name}" for name in NAMES}
        self.called = {"one": "one", "two": ""}
        self.unfinished: dict[str, set[int]] = {name: set() for name in NAMES}  # rows of a replay that died
        self.was: dict[str, str] = {}
        for name in NAMES:
            self.fill(name)
            self.run(name)

    # the pipelines

    def pipeline(self, name: str, *, strict: bool = True) -> Pipeline:
        """Rejects every third row, or none."""
        stream = self.world.source(self.sources[name]).incremental(poll=1)
        good = "id % 3 <> 0" if strict else "id > 0"
        made: Pipeline = (
            stream >> expect({"good": good}, on_fail="quarantine") >> self.world.sink(self.target).quarantine("a.bad")
        )
        return made.named(self.called[name], was=self.was.get(name)) if self.called[name] else made

    def name_of(self, name: str) -> str:
        return self.called[name] or f"local.{self.target}"

    def held(self) -> Counter[int]:
        """The ids of the target and of the quarantine together."""
        return Counter(self.world.ids(self.target)) + self.rejected()

    def rejected(self) -> Counter[int]:
        rows = self.world.rows("a.bad", "payload") if self.world.catalog.exists("a.bad") else Counter()
        return Counter(int(text.split(":")[1].rstrip("}")) for (text,) in rows.elements())

    def account(self, name: str | None = None) -> None:
        """No row occurs twice; with a pipeline, none of its rows is missing."""
        held = self.held()
        twice = {id for id, count in held.items() if count > 1} - set().union(*self.unfinished.values())
        assert not twice, (sorted(twice), " > ".join(self.done))
        unknown = held.keys() - set().union(*self.there.values())
        assert not unknown, (sorted(unknown), " > ".join(self.done))
        missing = self.there[name] - held.keys() - self.given_up if name is not None else set()
        assert not missing, (sorted(missing), " > ".join(self.done))

    # the operations

    def fill(self, name: str) -> None:
        ids = range(self.next_id, self.next_id + self.random.choice([1, 2, 5]))
        if self.random.random() < 0.3:
            ids = range(self.next_id + 3 - self.next_id % 3, self.next_id + 7, 3)  # rejected whole
        self.next_id = max(ids) + 1
        self.world.fill(self.sources[name], list(ids))
        self.there[name] |= set(ids)

    def run(self, name: str) -> None:
        self.world.run(self.pipeline(name))
        self.account(name)

    def die(self, name: str) -> None:
        self.fill(name)
        with dies_before_commit():
            self.world.run(self.pipeline(name))

    def new_checkpoint(self, name: str) -> None:
        self.world.run(self.pipeline(name), new_checkpoint=True)
        self.account(name)

    def lose(self, name: str) -> None:
        """With nothing of a replay that died in it: that is refused, with what is to be done by hand."""
        if self.unfinished[name]:
            self.replay(name)
        shutil.rmtree(self.world.checkpoint(self.pipeline(name)))
        if self.random.random() < 0.5:
            self.fill(name)
        with pytest.raises(CheckpointError, match="is lost"):
            self.world.run(self.pipeline(name))
        self.new_checkpoint(name)

    def replay(self, name: str) -> None:
        if self.world.catalog.exists("a.bad"):
            Replay(self.world.plan(self.pipeline(name, strict=False)), self.world.spark).run()
            self.unfinished[name].clear()

    def replay_that_dies(self, name: str) -> None:
        """Before the commit of the target or behind it; it is finished at once or some time later."""
        self.replay_unfinished()
        self.run(name)  # rows of a batch that did not end are not replayed
        held = self.world.rows("a.bad", "pipeline") if self.world.catalog.exists("a.bad") else {}
        if (self.name_of(name),) in held or (self.was.get(name),) in held:
            before = self.rejected()
            with dies_before_commit() if self.random.random() < 0.5 else dies_at(Replay, "_finish"):
                Replay(self.world.plan(self.pipeline(name, strict=False)), self.world.spark).run()
            self.unfinished[name] = set(before) & self.there[name]
            if self.random.random() < 0.5:
                self.replay(name)

    def replay_unfinished(self) -> None:
        for name in NAMES:
            if self.unfinished[name]:
                self.replay(name)

    def roll_back(self, name: str) -> None:
        """Behind something of each pipeline: both are refused, and the table goes forward again, or it is accepted."""
        table = self.world.load(self.target)
        head, before = table.current_snapshot().id, self.random.choice(table.snapshots()).id
        if before == head or self.random.random() < 0.3:
            return
        held = self.held()
        self.world.sql(f"CALL local.system.set_current_snapshot('{self.target}', {before})")
        lost = held - self.held()
        refused = []
        for one in NAMES:
            try:
                self.world.run(self.pipeline(one))
            except LedgerError:
                refused.append(one)
        if self.random.random() < 0.5 and len(refused) == len(NAMES):
            self.world.sql(f"CALL local.system.set_current_snapshot('{self.target}', {head})")
            return
        assert not lost or refused, " > ".join(self.done)
        self.given_up |= set(lost)
        for one in refused:
            self.new_checkpoint(one)

    def expire(self, name: str) -> None:
        """Of a source only what was read: an expired snapshot that was not stops its reader for good."""
        table = self.random.choice([self.target, self.target, self.sources[name]])
        if table != self.target:
            self.run(name)
        self.world.expire(table)

    def compact(self, name: str) -> None:
        self.world.compact(self.target)

    def refresh(self, name: str) -> None:
        """Is refused where it would delete the rows of the other one; else what was given up comes again."""
        held = self.held()
        try:
            self.world.run(self.pipeline(name), full_refresh=True)
        except InputError:
            assert self.held() == held
            return
        self.given_up -= self.there[name]
        self.unfinished[name].clear()
        self.account(name)
        assert not held - self.held()

    def second(self, name: str) -> None:
        """A third pipeline of the same rows is refused."""
        with pytest.raises(CheckpointError, match="write them once more"):
            self.world.run(self.pipeline(name).named("third"))

    def rename_source(self, name: str) -> None:
        old, new = self.sources[name], f"a.{name}{self.next_id}"
        if old != new:
            self.world.sql(f"ALTER TABLE local.{old} RENAME TO {new}")
            self.sources[name] = new

    def rename_target(self, name: str) -> None:
        """As a person does it, or by the command."""
        old, new = self.target, f"a.t{self.next_id}"
        if old == new:
            return
        if all(self.called.values()) and self.random.random() < 0.5:
            self.world.sql(f"ALTER TABLE local.{old} RENAME TO {new}")
        else:
            tables = (TableName(self.world.catalog, ("a",), one.removeprefix("a.")) for one in (old, new, "a.bad"))
            before, after, quarantine = tables
            rename(self.world.spark, before, after, [quarantine])
        self.target = new

    def rename_pipeline(self, name: str) -> None:
        """Says what it was called, now or for ever."""
        old, new = self.name_of(name), f"{name}{self.next_id}"
        if old == new:
            return
        self.called[name], self.was[name] = new, old
        self.run(name)
        if self.random.random() < 0.7:
            del self.was[name]

    def step(self) -> None:
        """One operation, then both pipelines."""
        often: list[Callable[[str], None]] = [self.fill, self.run, self.die, self.new_checkpoint]
        rarely = [self.lose, self.replay, self.replay_that_dies, self.roll_back, self.expire, self.compact]
        renames = [self.rename_source, self.rename_target, self.rename_pipeline]
        chosen = self.random.choice([*often, *often, *rarely, *renames, self.refresh, self.second])
        name = self.random.choice(NAMES)
        self.done.append(f"{chosen.__name__} {name}")
        try:
            chosen(name)
            self.account()
            if self.random.random() < 0.5:
                for one in NAMES:
                    self.run(one)
        except HeliosError as error:
            raise AssertionError(" > ".join(self.done)) from error


@pytest.mark.timeout(3600)
@pytest.mark.cases(landing="15-1", slow=("100-2", "100-3"))
@pytest.mark.parametrize(("steps", "seed"), [(15, 1), (100, 2), (100, 3)])
def test_every_row_is_accounted_for(world: Any, steps: int, seed: int) -> None:
    drawn = Drawn(world, seed)
    for _ in range(steps):
        drawn.step()
    drawn.replay_unfinished()
    for name in NAMES:
        drawn.run(name)
