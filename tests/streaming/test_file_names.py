"""Files and folders of any name: each file is read once, and its folders' values are its own."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from helios import Files
from helios.errors import HeliosError, InputError
from helios.sources.files.spark import listing

pytestmark = pytest.mark.promise("files")

OLD = 1_700_000_000
NAMES = (
    "a.csv",
    "report [1].csv",
    "what?.csv",
    "x{1}.csv",
    "*.csv",
    "back\\slash.csv",
    "ä ß.csv",
    "100%25.csv",
    "q'\".csv",
)


def land(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (OLD, OLD))
    return folder


@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.cases(landing="False")
def test_names_are_no_globs(world: Any, followed: bool) -> None:
    folder = land(world.folder / "in", {name: f"id\n{number}\n" for number, name in enumerate(NAMES)})
    source = Files.source(str(folder), "csv", schema="id bigint")
    world.run((source.incremental(poll=1) if followed else source) >> world.sink("a.t"))
    assert world.ids("a.t") == list(range(len(NAMES)))


def test_a_few_files_and_many_are_listed_alike(world: Any, shared_spark: Any) -> None:
    """Statuses cross as text, and from `MANY` on through a file."""
    names = (*NAMES, "a, b; isDirectory=false; length=7; modification_time=1.csv")
    folder = land(world.folder / "in", {f"day=1/{name}": "id\n1\n" for name in names})
    few = listing.list_path(shared_spark, str(folder))
    assert few == {f"file:{file}": (5, OLD * 1000) for file in (folder / "day=1").iterdir()}
    land(folder, {f"more/{number}.csv": "id\n" * (number % 3) for number in range(listing.MANY)})
    many = listing.list_path(shared_spark, str(folder))
    more = {f"file:{folder}/more/{number}.csv": (3 * (number % 3), OLD * 1000) for number in range(listing.MANY)}
    assert many == few | more


def test_a_folder_that_is_there_is_no_glob(world: Any) -> None:
    land(world.folder / "in[1]", {"a.csv": "id\n1\n"})
    land(world.folder / "in1", {"a.csv": "id\n2\n"})
    world.run(Files.source(str(world.folder / "in[1]"), "csv", schema="id bigint") >> world.sink("a.t"))
    assert world.ids("a.t") == [1]


@pytest.mark.parametrize("path", ["_a.csv", ".a.csv", "_*.csv"])
def test_a_path_of_hidden_files_is_refused(world: Any, path: str) -> None:
    folder = land(world.folder / "in", {"_a.csv": "id\n1\n", ".a.csv": "id\n2\n"})
    with pytest.raises(InputError, match="names hidden files"):
        world.run(Files.source(str(folder / path), "csv", schema="id bigint") >> world.sink("a.t"))


@pytest.mark.landing
def test_folders_of_any_name_are_columns(world: Any) -> None:
    names = {"größe": "größe=5", "a/b": "a%2Fb=6", "k[1]": "k[1]=7", "q'\"x": "q'\"x=8", "with space": "with space=9"}
    values = {"größe": 5, "a/b": 6, "k[1]": 7, "q'\"x": 8, "with space": 9}
    files = {f"{part}/{number}.csv": f"id\n{number}\n" for number, part in enumerate(names.values())}
    world.run(Files.source(str(land(world.folder / "in", files)), "csv") >> world.sink("a.t"))
    expected = [(n, *(values[name] if name == own else None for name in names)) for n, own in enumerate(names)]
    found = world.load("a.t").iceberg.scan().to_arrow().select(["id", *names]).to_pylist()
    assert Counter(tuple(row.values()) for row in found) == Counter(expected)


def test_a_folder_of_the_path_itself_is_no_column(world: Any) -> None:
    folder = land(world.folder / "day=2020-02-02", {"day=2026-01-01/a.csv": "id\n1\n", "b.csv": "id\n2\n"})
    world.run(Files.source(str(folder), "csv", schema="id bigint, day string") >> world.sink("a.t"))
    assert world.rows("a.t", "id", "day") == Counter([(1, "2026-01-01"), (2, None)])


def test_a_column_of_a_file_stands_beside_that_of_its_folder(world: Any) -> None:
    files = {"a.csv": "id,day\n1,d1\n", "day=d2/b.csv": "id\n2\n", "day=d3/c.csv": "id,day\n3,d3\n4,other\n5,\n"}
    source = Files.source(str(land(world.folder / "in", files)), "csv", schema="id bigint, day string")
    world.run(source.on_bad_row("quarantine") >> world.sink("a.t").quarantine("a.q"))
    assert world.rows("a.t", "id", "day") == Counter([(1, "d1"), (2, "d2"), (3, "d3"), (5, "d3")])
    [(reason,)] = world.rows("a.q", "reason")
    assert reason == "day differs from the value in the folder name"


def test_a_folder_in_one_of_another_value_is_told(world: Any) -> None:
    folder = land(world.folder / "in", {"k=1/a.csv": "id\n1\n", "k=1/x/K=2/b.csv": "id\n2\n"})
    with pytest.raises(InputError, match=r"k=1/x/K=2/ gives a row two values of a column: k=1, K=2"):
        world.run(Files.source(str(folder), "csv") >> world.sink("a.t"))


def test_a_link_is_a_file_of_its_own(world: Any) -> None:
    folder = land(world.folder / "in", {"a.csv": "id\n1\n"})
    land(world.folder / "out", {"b.csv": "id\n2\n"})
    (folder / "c.csv").symlink_to(world.folder / "out" / "b.csv")
    (folder / "more").symlink_to(world.folder / "out")
    (folder / "_hidden").symlink_to(world.folder / "nothing")
    world.run(Files.source(str(folder), "csv", schema="id bigint") >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 2, 2]


def test_a_link_to_nothing_is_told(world: Any) -> None:
    folder = land(world.folder / "in", {"a.csv": "id\n1\n"})
    (folder / "b.csv").symlink_to(world.folder / "gone.csv")
    with pytest.raises(InputError, match=r"in/b\.csv is a symbolic link to .*/gone\.csv, which does not exist"):
        world.run(Files.source(str(folder), "csv", schema="id bigint") >> world.sink("a.t"))


@pytest.mark.parametrize(("link", "target"), [("in/x/loop", "in"), ("in/x/loop", "in/x"), ("other/back", "in/x")])
def test_a_link_to_a_folder_around_it_is_told(world: Any, link: str, target: str) -> None:
    folder = land(world.folder / "in", {"x/a.csv": "id\n1\n"})
    (world.folder / "other").mkdir()
    (folder / "x" / "there").symlink_to(world.folder / "other")
    (world.folder / link).symlink_to(world.folder / target)
    with pytest.raises(InputError, match=rf"is a symbolic link to .*/{target}, which contains the link"):
        world.run(Files.source(str(folder), "csv", schema="id bigint") >> world.sink("a.t"))


def test_a_name_that_is_not_utf8_is_told(world: Any) -> None:
    folder = world.folder / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.csv").write_text("id\n1\n")
    with open(os.fsencode(folder / "deep") + b"/gr\xf6\xdfe.csv", "w") as file:
        file.write("id\n2\n")
    with pytest.raises(HeliosError, match=r"deep/gr\\xf6\\xdfe\.csv: the name is not UTF-8"):
        world.run(Files.source(str(folder), "csv", schema="id bigint") >> world.sink("a.t"))


@pytest.mark.parametrize("glob", ["*.csv", "*/*.csv", "{a,de*}", "*/deep?r/"])
def test_a_name_that_is_not_utf8_is_told_where_a_glob_matches_it(world: Any, glob: str) -> None:
    folder = land(world.folder / "in", {"a.csv": "id\n1\n", "deep/deeper/b.csv": "id\n2\n", "deep/c.csv": "id\n3\n"})
    source = Files.source(str(folder / glob), "csv", schema="id bigint")
    world.run(source >> world.sink("a.t"))
    bad = {
        "*.csv": b"gr\xf6.csv",
        "*/*.csv": b"\xf6/c.csv",
        "{a,de*}": b"deep/x/\xf6",
        "*/deep?r/": b"deep/deep\xf6r/c",
    }
    for other in {*bad.values()} - {bad[glob], b"deep/x/\xf6"} | {b"\xf6.txt"}:
        write(folder, other)
    if glob != "{a,de*}":
        world.run(source >> world.sink("a.others"))
        assert world.rows("a.others") == world.rows("a.t")
    write(folder, bad[glob])
    with pytest.raises(HeliosError, match=r"\\xf6.*: the name is not UTF-8"):
        world.run(source >> world.sink("a.fail"))


def write(folder: Path, name: bytes) -> None:
    path = os.path.join(os.fsencode(folder), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write("id\n9\n")
