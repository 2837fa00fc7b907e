"""How to compact: the options with which Iceberg's bin-packing ends at so many files as their bytes ask for.

Iceberg packs small files by the bytes that are read, and hopes for the bytes that are written. They differ: one large
file compresses better than many small ones, and every file has a footer. So the size of a file is estimated from its
rows, as `overhead + rows * width`, by the files that are there; the packing is played through; and the options are
chosen whose outcome is nearest to `bytes / target size` files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

TOLERANCE = 0.05
"""How far the number of files may be from bytes / target size before files are rewritten for it."""

MIN_INPUT_FILES = 5
"""Iceberg's own default: so many small files are worth a rewrite."""

NO_LIMIT = 1 << 50
SPLIT_OVERHEAD = 5 * 1024
LOOKBACK = 10
SMALL = 0.75
"""Files below this share of the target size are small, as Iceberg has it by default."""
SHARES = {False: (0.9, SMALL, 0.6, 0.45, 0.3, 0.15), True: (1.25, 0.9, SMALL, 0.6, 0.45, 0.3, 0.15)}
"""Which files are rewritten: those below one of these shares of the target size; with or without files that fit."""
LEAST_TRIAL = 4
"""Fewer files than these are near enough to the target size to tell by themselves."""
SCALES = tuple(0.8 + 0.05 * step for step in range(15))
"""How much is read for a new file, beside what the estimate says."""


@dataclass(frozen=True)
class DataFile:
    """A data file of a table.

    Attributes:
        group: The partition, within which files are packed together.
        size: Its bytes.
        rows: Its rows.
    """

    group: str
    size: int
    rows: int


@dataclass(frozen=True)
class Packing:
    """A compaction, before it is run.

    Attributes:
        target: Bytes that are read for one new file.
        minimum: Files of fewer bytes are rewritten.
        rewritten: How many files that is.
        read: Their bytes.
        files: How many files the table has afterwards, as far as can be told.
        bytes: Their bytes.
        trial: Only so many files are to be rewritten, to see what comes out; 0 for all.
    """

    target: int
    minimum: int
    rewritten: int
    read: int
    files: int
    bytes: int
    trial: int = 0

    def options(self) -> dict[str, str]:
        """The options of Iceberg's action."""
        options = {
            "target-file-size-bytes": str(self.target),
            "min-file-size-bytes": str(self.minimum),
            # A writer that also watched the size would end files early: of what it holds in memory it counts more.
            "max-file-size-bytes": str(NO_LIMIT),
            "min-input-files": "2",
        }
        return {**options, "max-files-to-rewrite": str(self.trial)} if self.trial else options


def off(files: int, size: int, target: int) -> float:
    """How far a number of files is from bytes / target size, as a share of it; the least number is one.

    Examples:
        >>> off(11, 1000, 100), off(1, 10, 100)
        (0.1, 0.0)
    """
    wanted = max(1.0, size / target)
    return round(abs(files / wanted - 1), 6)


def pack(files: Sequence[DataFile], target: int, *, sparing: bool = False, repack: bool = False) -> Packing | None:
    """The compaction of a table's files that comes nearest to bytes / target size.

    Args:
        files: The table's data files.
        target: The target size of a file in bytes.
        sparing: Whether nothing is done within the tolerance or for a gain below it, and of several ways that end
            within it the one that reads least is taken: for a table that is compacted over and over.
        repack: Whether files of the target size may be packed anew, where that is what it takes.

    Returns:
        None where there is nothing to do.
    """
    total = sum(file.size for file in files)
    now = off(len(files), total, target)
    if not files or (sparing and now <= TOLERANCE):
        return None
    known = estimate(files)
    small = [file for file in files if file.size < SMALL * target]
    if _needs_trial(small, files, target, known):
        overhead, width = known
        each = sum(file.rows for file in small) / len(small)
        count = round((target - overhead) / width / each)
        if LEAST_TRIAL <= count < len(small):
            return Packing(target, int(SMALL * target), count, 0, len(files), total, trial=count)
    ways = [way for way in _ways(files, target, known, SHARES[repack]) if way.files < len(files)]
    distances = {way: off(way.files, way.bytes, target) for way in ways}
    if sparing:
        ways = [way for way in ways if now - distances[way] >= TOLERANCE]
        within = [way for way in ways if distances[way] <= TOLERANCE]
        if within:
            return min(within, key=lambda way: (way.read, distances[way]))
    return min(ways, key=lambda way: (round(distances[way] / TOLERANCE), way.read), default=None)


def estimate(files: Sequence[DataFile]) -> tuple[float, float]:
    """The overhead of a file and the width of a row, in bytes: a straight line through the files.

    Examples:
        >>> estimate([DataFile("", 1100, 10), DataFile("", 1400, 40)])
        (1000.0, 10.0)
    """
    total = sum(file.rows for file in files)
    plain = 0.0, sum(file.size for file in files) / max(1, total)
    if not total:
        return plain
    # Weighted by rows: what the large files say counts for new ones that are larger still.
    mean_rows = sum(file.rows**2 for file in files) / total
    mean_size = sum(file.rows * file.size for file in files) / total
    spread = sum(file.rows * (file.rows - mean_rows) ** 2 for file in files)
    if not spread:
        return plain
    width = sum(file.rows * (file.rows - mean_rows) * (file.size - mean_size) for file in files) / spread
    overhead = mean_size - width * mean_rows
    return (overhead, width) if width > 0 and overhead >= 0 else plain


def _needs_trial(small: Sequence[DataFile], files: Sequence[DataFile], target: int, known: tuple[float, float]) -> bool:
    """Whether some group makes more than one new file, and no file is there that is nearly as large as those."""
    groups: dict[str, int] = {}
    for file in small:
        groups[file.group] = groups.get(file.group, 0) + file.size
    if max(groups.values(), default=0) <= target:
        return False
    overhead, width = known
    largest, least = max(file.rows for file in files), min(file.rows for file in small)
    return largest < 2 * least or largest < (target - overhead) / width / 2


def _ways(
    files: Sequence[DataFile], target: int, known: tuple[float, float], shares: Sequence[float]
) -> Iterator[Packing]:
    overhead, width = known
    tried = 0
    for share in shares:
        minimum = int(share * target)
        groups: dict[str, list[DataFile]] = {}
        for file in files:
            if file.size < minimum:
                groups.setdefault(file.group, []).append(file)
        packed = [group for group in groups.values() if len(group) > 1]
        if not packed:
            continue
        read = sum(file.size for group in packed for file in group)
        rows = sum(file.rows for group in packed for file in group)
        count = sum(len(group) for group in packed)
        if count == tried:
            continue  # the same files as with a larger share
        tried = count
        left_files = len(files) - count
        left_bytes = sum(file.size for file in files) - read
        room = max(target - overhead, target / 2)
        wanted = read / max(1.0, rows * width / room)  # bytes that are read for a file of the target size
        for scale in SCALES:
            aim = max(int(wanted * scale), minimum + 1)
            made = sum(_outcome(group, aim, minimum) for group in packed)
            written = min(read, int(made * overhead + rows * width))
            yield Packing(aim, minimum, count, read, left_files + made, left_bytes + written)


def _outcome(group: Sequence[DataFile], aim: int, minimum: int) -> int:
    """How many files Iceberg makes of a group (`SizeBasedFileRewritePlanner`, with no upper limit)."""
    read = sum(file.size for file in group)
    estimated = read // _expected(read, aim, minimum) + SPLIT_OVERHEAD
    split = max(aim, estimated)
    return bins((file.size for file in group), split)


def _expected(read: int, aim: int, minimum: int) -> int:
    whole, rest = divmod(read, aim)
    if whole == 0:
        return 1
    spread_out = rest <= minimum and read / whole < 1.1 * aim
    return whole if rest == 0 or spread_out else whole + 1


def bins(sizes: Iterable[int], capacity: int) -> int:
    """How many bins Iceberg packs sizes into (`BinPacking`): first fit, with so many bins open at once.

    Examples:
        >>> bins([3, 3, 3, 3], 6), bins([4, 4, 4], 6)
        (2, 3)
    """
    closed, opened = 0, list[int]()
    for size in sizes:
        at = next((i for i, filled in enumerate(opened) if filled + size <= capacity), None)
        if at is not None:
            opened[at] += size
            continue
        opened.append(size)
        if len(opened) > LOOKBACK:
            opened.remove(max(opened))
            closed += 1
    return closed + len(opened)
