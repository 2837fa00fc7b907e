"""Which snapshots a source reads, settled against a real table."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog, Iceberg, Memory
from helios.errors import DeclarationError, HeliosError, InputError, NotFound
from helios.plan import Context, compile_pipelines
from helios.plan.context import Unsettled
from helios.sources.iceberg.declare import IcebergSource
from helios.sources.iceberg.history import ResolvedSnapshots, history, resolve_snapshots
from helios.table.snapshots import Table

pytestmark = pytest.mark.promise("time-travel")

IDS = pa.schema([("id", pa.int64())])
SOURCE = Iceberg.source("a.t")
SINK = Iceberg.sink("a.out")


def add(table: Table, *ids: int, branch: str = "main") -> int:
    """Appends rows and returns the snapshot."""
    table.iceberg.refresh()
    table.iceberg.append(pa.table({"id": pa.array(ids, pa.int64())}), branch=branch)
    table.iceberg.refresh()
    return table.branches()[branch]


class World:
    """Main: s[0] to s[3]; the branch `b` left it at s[1] with b[0] and b[1]; s[2] is tagged v2, and b[0] vb."""

    def __init__(self, catalog: Catalog) -> None:
        self.table = catalog.create_table("a.t", IDS)
        self.s = [add(self.table, i) for i in range(2)]
        self.table.branch("b")
        self.s += [add(self.table, i) for i in range(2, 4)]
        self.table.tag("v2", self.s[2])
        self.b = [add(self.table, i, branch="b") for i in (10, 11)]
        self.table.tag("vb", self.b[0])
        self.table.iceberg.refresh()

    def time(self, snapshot: int, later: int = 0) -> datetime:
        return self.table.snapshot(snapshot).timestamp + timedelta(milliseconds=later)

    def resolve_snapshots(self, source: IcebergSource) -> ResolvedSnapshots:
        return resolve_snapshots(source, self.table)

    def refused(self, source: IcebergSource, kind: type[HeliosError], *parts: str) -> None:
        """Every part is in the message, which names the line of this file."""
        with pytest.raises(kind) as error:
            self.resolve_snapshots(source)
        assert type(error.value) is kind
        text = str(error.value)
        for part in (*parts, "test_history.py:", "Fix: "):
            assert part in text, text


@pytest.fixture
def world(catalog: Catalog) -> World:
    return World(catalog)


# states


def test_without_a_point_nothing_is_settled_but_the_head(world: World) -> None:
    for source in (SOURCE, *(SOURCE.incremental(start=start) for start in (None, "current", "latest", "earliest"))):
        assert world.resolve_snapshots(source) == ResolvedSnapshots(head=world.s[3])


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("followed", [False, True])
def test_a_time_is_the_state_of_main(world: World, followed: bool, as_text: bool) -> None:
    source = SOURCE.incremental() if followed else SOURCE
    for snapshot in (world.s[0], world.s[2]):
        moment = world.time(snapshot)
        assert world.resolve_snapshots(source.as_of(moment.isoformat() if as_text else moment)).state == snapshot
    assert world.resolve_snapshots(source.as_of("2200-01-01")) == ResolvedSnapshots(state=world.s[3], head=world.s[3])


def test_a_time_without_an_offset_is_utc(world: World) -> None:
    moment = world.time(world.s[2])
    assert world.resolve_snapshots(SOURCE.as_of(moment.replace(tzinfo=None))).state == world.s[2]
    shifted = moment.astimezone(datetime.fromisoformat("2026-01-01T00:00:00+05:30").tzinfo)
    assert world.resolve_snapshots(SOURCE.as_of(shifted.isoformat())).state == world.s[2]


def test_ids_tags_and_branches(world: World) -> None:
    for source in (SOURCE, SOURCE.incremental()):
        assert world.resolve_snapshots(source.at_snapshot(world.s[1])) == ResolvedSnapshots(
            state=world.s[1], head=world.s[3]
        )
        assert world.resolve_snapshots(source.at_ref("main")) == ResolvedSnapshots(state=world.s[3], head=world.s[3])
        assert world.resolve_snapshots(source.at_ref("v2")) == ResolvedSnapshots(state=world.s[2], head=world.s[3])
        branch = ResolvedSnapshots(branch="b", state=world.b[1], head=world.b[1])
        assert world.resolve_snapshots(source.at_ref("b")) == branch
        assert world.resolve_snapshots(source.at_ref("vb")) == ResolvedSnapshots(
            branch="b", state=world.b[0], head=world.b[1]
        )


def test_a_name_that_looks_like_a_time_is_a_name_in_at_ref(world: World) -> None:
    world.table.tag("2026-01-01", world.s[0])
    assert world.resolve_snapshots(SOURCE.at_ref("2026-01-01")).state == world.s[0]
    world.refused(SOURCE.between("2026-01-01", world.s[3]), DeclarationError, "is a time, and also a name")


def test_what_is_not_there(world: World) -> None:
    first = f"{world.time(world.s[0]):%Y-%m-%dT%H:%M}"
    world.refused(SOURCE.as_of("2020-01-01"), NotFound, "as_of('2020-01-01')", "had no snapshot", first, "retains 6")
    world.refused(
        SOURCE.at_snapshot(7),
        NotFound,
        "at_snapshot(7): table local.a.t has no snapshot 7: it has expired, or",
        "retains 6",
    )
    typo = world.s[2] + 1
    world.refused(SOURCE.at_snapshot(typo), NotFound, "Did you mean ", str(typo)[:-1])
    world.refused(SOURCE.at_ref("v3"), NotFound, "no branch or tag 'v3'. Known: b, main, v2, vb.")
    world.refused(SOURCE.at_ref("mein"), NotFound, "no branch or tag 'mein'. Did you mean 'main'?")
    world.refused(SOURCE.between("mian", "v2"), NotFound, "between('mian', 'v2')", "Did you mean 'main'?")


def test_what_is_not_there_any_more_is_no_matter_to_who_has_begun(world: World) -> None:
    for source in (
        SOURCE.incremental().as_of("2020-01-01"),
        SOURCE.incremental().at_snapshot(7),
        SOURCE.incremental().at_ref("v3"),
        SOURCE.incremental(start=7),
    ):
        world.refused(source, Unsettled, "A pipeline that has begun continues anyway.")


def test_an_empty_table(catalog: Catalog, world: World) -> None:
    world.table = catalog.create_table("a.empty", IDS)
    assert world.resolve_snapshots(SOURCE.incremental()) == ResolvedSnapshots()
    world.refused(SOURCE.as_of("2200-01-01"), NotFound, "main has no snapshots", "local.a.empty has none.")
    world.refused(SOURCE.at_snapshot(7), NotFound, "local.a.empty has none.")
    world.refused(SOURCE.at_ref("main"), NotFound, "no branch or tag 'main'. There are none.")


# following from a state


def test_a_start_is_a_snapshot_of_main(world: World) -> None:
    assert world.resolve_snapshots(SOURCE.incremental(start=world.s[1])) == ResolvedSnapshots(head=world.s[3])
    world.refused(SOURCE.incremental(start=world.b[0]), Unsettled, f"start={world.b[0]}", "the branch b")


def test_what_main_was_rolled_back_from_is_read_and_not_followed(world: World) -> None:
    world.table.rollback_to(world.s[1])
    world.table.iceberg.refresh()
    assert world.resolve_snapshots(SOURCE.at_snapshot(world.s[3])) == ResolvedSnapshots(
        state=world.s[3], head=world.s[1]
    )
    assert world.resolve_snapshots(SOURCE.at_ref("v2")) == ResolvedSnapshots(state=world.s[2], head=world.s[1])
    moment = world.time(world.s[3], later=-1)
    assert world.resolve_snapshots(SOURCE.as_of(moment)).state == world.s[2]
    for followed in (
        SOURCE.incremental().at_snapshot(world.s[3]),
        SOURCE.incremental().at_ref("v2"),
        SOURCE.incremental().as_of(moment),
        SOURCE.incremental(start=world.s[2]),
    ):
        world.refused(followed, Unsettled, "is not in the history of main", "rolled back")


def test_a_tag_of_several_branches_but_not_of_main_is_ambiguous(world: World) -> None:
    world.table.branch("c", world.b[1])
    world.table.iceberg.refresh()
    world.refused(SOURCE.incremental().at_ref("vb"), DeclarationError, "the branches b, c, and not of main", ".at_ref(")
    assert world.resolve_snapshots(SOURCE.at_ref("vb")).state == world.b[0]


def expire(table: Table, *ids: int) -> None:
    table.iceberg.maintenance.expire_snapshots().by_ids(list(ids)).commit()
    table.iceberg.refresh()


def test_expired_history(world: World) -> None:
    world.table.tag("old", world.s[0])
    world.table.drop_branch("b")
    world.table.iceberg.refresh()
    expire(world.table, world.s[1])
    assert world.resolve_snapshots(SOURCE.at_ref("old")) == ResolvedSnapshots(state=world.s[0], head=world.s[3])
    gone = f"table local.a.t has no snapshot {world.s[1]}: it has expired, or never existed"
    world.refused(SOURCE.at_snapshot(world.s[1]), NotFound, gone)
    world.refused(SOURCE.incremental(start=world.s[1]), Unsettled, gone, "retains 5 snapshots, from snapshot")
    gap = f"the commits between it and snapshot {world.s[2]}"
    world.refused(SOURCE.incremental().at_ref("old"), Unsettled, gap, 'start="earliest"')
    assert world.resolve_snapshots(SOURCE.incremental().at_ref("v2")).state == world.s[2]
    world.refused(
        SOURCE.between("old", "main"),
        NotFound,
        f"the commits between snapshot {world.s[0]}",
        "are missing or have expired",
    )
    assert [snapshot.id for snapshot in history(world.table, world.s[3])] == [world.s[3], world.s[2]]


# spans


def test_spans(world: World) -> None:
    s, b = world.s, world.b
    for points, span in (
        ((s[0], s[2]), (s[0], s[2])),
        ((s[0], "main"), (s[0], s[3])),
        ((world.time(s[0]), world.time(s[2]).isoformat()), (s[0], s[2])),
        ((world.time(s[1]), "v2"), (s[1], s[2])),
        (("v2", "2200-01-01"), (s[2], s[3])),
        ((s[1], s[1]), (s[1], s[1])),
        (("2200-01-01", "2200-01-01"), (s[3], s[3])),
        ((s[1], "vb"), (s[1], b[0])),
    ):
        for source in (SOURCE.between(*points), SOURCE.changes_between(*points, keys="id")):
            assert world.resolve_snapshots(source) == ResolvedSnapshots(span=span, head=s[3])
    assert world.resolve_snapshots(SOURCE.between(s[0], "b")) == ResolvedSnapshots(
        branch="b", span=(s[0], b[1]), head=b[1]
    )


def test_a_reversed_span_says_how_it_is_swapped(world: World) -> None:
    s = world.s
    told = f"between({s[2]}, {s[0]}) is reversed: it begins at snapshot {s[2]}"
    world.refused(SOURCE.between(s[2], s[0]), DeclarationError, told, f"swap them: between({s[0]}, {s[2]}).")
    world.refused(SOURCE.changes_between("v2", s[1]), DeclarationError, f"changes_between('v2', {s[1]}) is reversed")
    # Both are the state of s[3], and yet the wrong way round.
    world.refused(SOURCE.between("2200-01-01", "2100-01-01"), DeclarationError, "is reversed")


def test_points_of_two_histories(world: World) -> None:
    world.refused(SOURCE.between("vb", "main"), DeclarationError, "is not an ancestor of", "different branches")
    world.refused(SOURCE.between("v2", "b"), DeclarationError, "is not an ancestor of")


def test_a_point_before_the_first_snapshot(world: World) -> None:
    world.refused(SOURCE.between("2020-01-01", "main"), NotFound, "between('2020-01-01', 'main')", "had no snapshot")


# in plans


def test_the_plan_is_filled(world: World, planned: Any) -> None:
    s, b = world.s, world.b
    (read,) = planned(SOURCE.at_ref("b") >> SINK).reads
    assert (read.branch, read.state, read.span, read.snapshot) == ("b", b[1], None, b[1])
    (read,) = planned(SOURCE.between(s[0], "v2") >> SINK).reads
    assert (read.branch, read.state, read.span, read.snapshot) == (None, None, (s[0], s[2]), s[3])
    (read,) = planned(SOURCE.incremental(start="latest") >> SINK).reads
    assert (read.branch, read.state, read.span, read.snapshot) == (None, None, None, s[3])
    assert read.format_version == 2


def test_a_problem_beside_others(world: World, problems: Any) -> None:
    found = problems(SOURCE.as_of("2020-01-01").where("ID > 1").select("di") >> SINK)
    assert [re.search(r": (\w+)", problem)[1] for problem in found] == ["as_of", "select"]  # type: ignore[index]


def test_a_run_is_not_kept_from_going_on_by_its_beginning(world: World, context: Context) -> None:
    gone = SOURCE.incremental().as_of("2020-01-01") >> SINK
    assert compile_pipelines([gone], context)[0] == []
    (plan,), (problem,) = compile_pipelines([gone], context, lenient=True)
    assert isinstance(problem, Unsettled)
    assert (plan.reads[0].state, plan.reads[0].snapshot) == (None, world.s[3])
    assert compile_pipelines([SOURCE.as_of("2020-01-01") >> SINK], context, lenient=True)[0] == []


def test_the_beginning_of_a_pipeline_that_has_begun_may_be_gone(
    world: World, planned: Any, problems: Any, tmp_path: Path
) -> None:
    gone = SOURCE.incremental().as_of("2020-01-01") >> SINK
    checkpoint = tmp_path / "cp"
    given = SOURCE.incremental(start=7) >> SINK.checkpoint(str(checkpoint))
    renamed = gone.named("new", was="old")
    for pipeline in (gone, given, renamed):
        assert len(problems(pipeline)) == 1
    default = tmp_path / ".helios/warehouse/_helios/checkpoints"
    for folder in (default / "local.a.out", default / "old", checkpoint):
        (folder / "helios").mkdir(parents=True)
        (folder / "helios/start.json").write_text("[]")
    for pipeline in (gone, given, renamed):
        assert planned(pipeline).reads[0].state is None
    assert len(problems(gone.named("another"))) == 1


def test_nothing_is_settled_where_nothing_can_be_looked_up(world: World, context: Context) -> None:
    offline = Context(config=context.config, catalogs=context.catalogs, offline=True)
    (plan,), found = compile_pipelines([SOURCE.at_ref("nope") >> SINK], offline)
    assert (found, plan.reads[0].state) == ([], None)
    made = Memory.source([{"id": 1}]) >> Iceberg.sink("a.made")
    plans, found = compile_pipelines([made, Iceberg.source("a.made").at_ref("v") >> SINK], context)
    assert (found, plans[1].reads[0].state) == ([], None)


def test_times_are_shown_in_utc(world: World) -> None:
    with pytest.raises(InputError, match=r"snapshot \d+ \(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\)"):
        world.resolve_snapshots(SOURCE.at_snapshot(7))
    assert world.time(world.s[0]).tzinfo is UTC


def test_an_id_that_a_snapshot_still_names_has_expired(world: World) -> None:
    """Java's expiry leaves the ids of parents, PyIceberg's does not."""
    metadata = world.table.iceberg.metadata
    kept = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id != world.s[0]]
    log = [entry for entry in metadata.snapshot_log if entry.snapshot_id != world.s[0]]
    world.table.iceberg.metadata = metadata.model_copy(update={"snapshots": kept, "snapshot_log": log})
    world.refused(SOURCE.at_snapshot(world.s[0]), NotFound, f"snapshot {world.s[0]} of local.a.t has expired.")
    before = world.time(world.s[1], later=-1)
    world.refused(SOURCE.as_of(before), NotFound, "had no snapshot at", "its first state is of")
