"""The log of a followed folder: entries, damage, merging, and what comes of a rewind."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.errors import CheckpointError
from helios.sources.common.file import File
from helios.sources.files.folder_position import MAX_NAME_BYTES, FolderPosition
from helios.sources.files.log import FANOUT, FileLog

pytestmark = pytest.mark.promise("files")


class Disk:
    """Files in a folder, counted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reads = 0

    def read(self, name: str) -> str | None:
        self.reads += 1
        path = self.root / name
        return path.read_text() if path.exists() else None

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def delete(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        return [path.name for path in (self.root / folder).glob("*")]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def log_of(disk: Disk) -> FileLog:
    return FileLog(disk, str(disk.root), 0)


def file(number: int) -> File:
    return File(f"file:/in/ü {number}.csv", number, 1_000 + number)


def written(disk: Disk, count: int) -> list[FolderPosition]:
    """The places of a log with one file in each of its entries."""
    log = log_of(disk)
    places = [FolderPosition(log=log.location)]
    for number in range(1, count + 1):
        places.append(log.append(places[-1], [file(number)]))
    return places


def known(count: int) -> dict[str, tuple[int, int]]:
    return {one.path: (one.size, one.modified) for one in map(file, range(1, count + 1))}


def parts(disk: Disk) -> list[Path]:
    return sorted((disk.root / "helios/files/0").iterdir())


def test_a_place_goes_through_json_and_names_its_files(disk: Disk) -> None:
    place = written(disk, 2)[-1]
    assert FolderPosition.parse(place.as_json()) == place
    assert (place.files, place.bytes, place.read, place.names) == (1, 2, 2, (file(2),))


def test_a_place_stays_small(disk: Disk) -> None:
    log = log_of(disk)
    place = log.append(FolderPosition(log=log.location), [file(number) for number in range(100_000)])
    assert len(str(place.as_json())) < 400
    few = log.append(place, [file(number) for number in range(50)])
    assert len(few.names) == 50
    assert len(str(few.as_json())) < MAX_NAME_BYTES + 400


def test_what_was_read_is_found_again(disk: Disk) -> None:
    places = written(disk, 5)
    assert log_of(disk).load(places[5]) == known(5)
    assert log_of(disk).load(places[3]) == known(3)
    assert log_of(disk).load(places[0]) == {}
    assert log_of(disk).files(3, places[4]) == [file(4)]
    assert log_of(disk).files(2, places[4]) == [file(3), file(4)]


def test_a_restart_reads_few_files_of_a_long_log(disk: Disk) -> None:
    count = FANOUT**2 + FANOUT + 3
    place = written(disk, count)[-1]
    disk.reads = 0
    assert log_of(disk).load(place) == known(count)
    assert disk.reads <= 3 * FANOUT
    assert len(parts(disk)) <= 2 * FANOUT


@pytest.mark.parametrize("cut", [1, 2, 20, 80], ids=lambda cut: f"{cut} bytes")
@pytest.mark.parametrize("entry", [1, 3])
def test_a_cut_entry_is_refused(disk: Disk, entry: int, cut: int) -> None:
    place = written(disk, 3)[-1]
    [path] = [path for path in parts(disk) if path.name.startswith(f"{entry}.")]
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(CheckpointError, match=rf"no longer has entry {entry}.*: the log was cut or changed"):
        log_of(disk).load(place)


def test_a_cut_line_of_a_merged_file_is_refused(disk: Disk) -> None:
    place = written(disk, FANOUT + 1)[-1]
    [path] = [path for path in parts(disk) if "-" in path.name]
    lines = path.read_text().splitlines(keepends=True)
    del lines[5]
    path.write_text("".join(lines))
    with pytest.raises(CheckpointError, match=f"no longer has entry {FANOUT}"):
        log_of(disk).load(place)


@pytest.mark.parametrize("entry", [1, 2, 17, FANOUT])
def test_an_entry_cut_out_of_a_merged_file_is_refused(disk: Disk, entry: int) -> None:
    """Each other entry is whole; only the chain of hashes tells that one is missing."""
    place = written(disk, FANOUT + 1)[-1]
    [path] = [path for path in parts(disk) if "-" in path.name]
    lines = path.read_text().splitlines(keepends=True)
    del lines[2 * (entry - 1) : 2 * entry]
    path.write_text("".join(lines))
    with pytest.raises(CheckpointError, match="no longer has entry"):
        log_of(disk).load(place)


def test_an_edited_line_is_refused(disk: Disk) -> None:
    place = written(disk, 2)[-1]
    [path] = [path for path in parts(disk) if path.name.startswith("1.")]
    path.write_text(path.read_text().replace("1001", "1002"))
    with pytest.raises(CheckpointError, match="no longer has entry 1"):
        log_of(disk).load(place)


def test_a_lost_log_names_what_can_be_done(disk: Disk) -> None:
    place = written(disk, 2)[-1]
    for path in parts(disk):
        path.unlink()
    with pytest.raises(
        CheckpointError, match=r"entry 2, which has 1 files: the file of the entry is gone.*full-refresh"
    ):
        log_of(disk).load(place)


@pytest.mark.parametrize("after", [2, FANOUT - 2, FANOUT, FANOUT + 3])
def test_a_rewound_log_goes_on_without_what_came_later(disk: Disk, after: int) -> None:
    places = written(disk, FANOUT + 5)
    log = log_of(disk)
    assert log.load(places[after]) == known(after)
    place, others = places[after], {}
    for number in range(1_000, 1_000 + 2 * FANOUT):
        place = log.append(place, [file(number)])
        others[file(number).path] = (number, 1_000 + number)
    assert log_of(disk).load(place) == known(after) | others


def test_an_entry_that_was_planned_and_given_up_is_no_part_of_it(disk: Disk) -> None:
    places = written(disk, 3)
    log = log_of(disk)
    log.load(places[2])
    again = log.append(places[2], [file(3), file(4)])
    assert log_of(disk).load(again) == known(4)
    assert log_of(disk).load(places[3]) == known(3)


def test_a_file_that_was_gone_is_not_known(disk: Disk) -> None:
    places = written(disk, 2)
    log_of(disk).note_skipped(places[1], [file(1).path])
    assert list(log_of(disk).load(places[2])) == [file(2).path]
    assert log_of(disk).files(0, places[1]) == []


def test_the_log_of_an_older_checkpoint_is_copied(disk: Disk, tmp_path: Path) -> None:
    place = written(disk, FANOUT + 2)[-1]
    log_of(disk).note_skipped(place, [file(FANOUT + 2).path])
    new = Disk(tmp_path / "new")
    log = log_of(new)
    assert log.load(place, log_of(disk)) == known(FANOUT + 1)
    later = log.append(place, [file(100)])
    assert len(log_of(new).load(later)) == FANOUT + 2


def test_files_that_were_set_aside_are_known_with_their_cause(disk: Disk) -> None:
    places = written(disk, 2)
    log = log_of(disk)
    log.note_unreadable(places[1], {file(1): "it is damaged"})
    assert log.unreadable_of(places[1]) == {file(1): "it is damaged"}
    assert log.unreadable_of(places[2]) == {}
    log.note_unreadable(places[2], {file(2): ""})  # as in the log of a checkpoint that replaces another one
    assert log.unreadable_of(places[2]) == {}
    assert log.unreadable() == known(2)


def test_a_log_whose_files_are_gone_stays_small(disk: Disk) -> None:
    """As segments of webhooks go once they are committed."""
    log = log_of(disk)
    place, sizes = FolderPosition(log=log.location), []
    for number in range(1, 2_001):
        place = log.append(place, [file(number)])
        if number % FANOUT == 0:
            log.forget(place)
        sizes.append(sum(path.stat().st_size for path in parts(disk)))
    assert max(sizes) < 2 * max(sizes[: FANOUT + 1])
    assert len(parts(disk)) <= FANOUT + 2
    assert place.read == 2_000
    oldest = 2_000 // FANOUT * FANOUT
    restarted = log_of(disk)
    assert list(restarted.load(place)) == [file(number).path for number in range(oldest, 2_001)]
    later = restarted.append(place, [file(2_001)])
    assert log_of(disk).files(place.entry, later) == [file(2_001)]
    new = Disk(disk.root / "new")
    assert list(log_of(new).load(later, log_of(disk))) == [file(number).path for number in range(oldest, 2_002)]
    assert log_of(new).files(-1, later) == log_of(disk).files(-1, later)


def test_what_is_left_of_a_forgotten_log_proves_what_it_has(disk: Disk) -> None:
    log = log_of(disk)
    place = written(disk, 3)[-1]
    log.load(place)
    log.forget(place)
    assert [path.name.partition(".")[0] for path in parts(disk)] == ["2", "3"]
    assert log_of(disk).load(place) == {file(3).path: (3, 1_003)}
    with pytest.raises(CheckpointError, match=r"no longer has entry 2\b"):
        log_of(disk).load(FolderPosition(log=place.log, entry=2, hash="0" * 32))
    parts(disk)[0].write_text("{")
    with pytest.raises(CheckpointError, match=r"no longer has entry 2\b"):
        log_of(disk).load(place)


def test_a_log_without_entries_has_nothing_to_forget(disk: Disk) -> None:
    log = log_of(disk)
    log.forget(FolderPosition(log=log.location))
    assert list(disk.root.iterdir()) == []


def test_a_driver_that_died_while_it_forgot(disk: Disk) -> None:
    places = written(disk, 5)
    kept = {path.name: path.read_text() for path in parts(disk)}
    log = log_of(disk)
    log.load(places[5])
    log.forget(places[5])
    for name, text in kept.items():  # the note was written, and nothing deleted yet
        disk.write(f"helios/files/0/{name}", text)
    log = log_of(disk)
    assert list(log.load(places[5])) == [file(5).path]
    place = log.append(places[5], [file(6)])
    log.forget(place)
    assert len(parts(disk)) == 2
