"""Distributes the input files of a batch over tasks, and limits the number of files that the tasks write."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from helios.native.program import NotNative
from helios.native.work import InputFile, Target
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.native.fields import string_map

SMALLEST_SHARE = 2 << 20
"""The minimum number of bytes that are worth another task."""
LARGEST_SHARE = 512 << 20
"""The maximum number of bytes of files for one task."""
SORTED_SHARE = 32 << 20
"""The same for a table with a sort order, since tasks sort in memory.

The files that Spark itself writes to such a table have about this size, too.
"""
FEW_FILES = 100
MAX_RATIO = 3
SMALL_FILE = 16 << 20
"""A batch writes too many files if all of this holds: more than `FEW_FILES` files, more than `MAX_RATIO` times as many
files as Spark would write, and a mean size below `SMALL_FILE` bytes."""


def shares_of(files: Sequence[InputFile], target: Target, cores: int) -> list[list[InputFile]]:
    """Divides files over tasks, of which `cores` run at the same time.

    Raises:
        NotNative: The table needs all rows of the batch in one task, and the batch is too large for it.
    """
    if target.spread == "together":
        if sum(file.size for file in files) > SORTED_SHARE:
            raise NotNative(
                "the sort order or distribution of the table needs all rows in one task, and a batch has more than "
                f"{SORTED_SHARE >> 20} MB"
            )
        return [list(files)] if files else []
    return divide(files, cores, SORTED_SHARE if target.sort else LARGEST_SHARE)


def divide(files: Iterable[InputFile], cores: int, max_bytes: int = LARGEST_SHARE) -> list[list[InputFile]]:
    """Divides files into one share for each task; the shares have about the same size, of at most `max_bytes`.

    Examples:
        >>> files = [InputFile(str(n), size << 20, 1) for n, size in enumerate((9, 30, 8, 12))]
        >>> [[file.path for file in share] for share in divide(files, 2)]
        [['1'], ['3', '0', '2']]
        >>> [len(share) for share in divide([InputFile(str(n), 1 << 20, 1) for n in range(10)], 2)]
        [5, 5]
    """
    by_size = sorted(files, key=lambda file: file.size, reverse=True)
    total = sum(file.size for file in by_size)
    count = min(len(by_size), cores, max(1, total // SMALLEST_SHARE))
    count = min(len(by_size), max(count, math.ceil(total / max_bytes)))
    shares: list[list[InputFile]] = [[] for _ in range(count)]
    sizes = [0] * count
    for file in by_size:
        smallest = sizes.index(min(sizes))
        shares[smallest].append(file)
        sizes[smallest] += max(1, file.size)
    return shares


# limits of the number of written files


def last_partition_count(table: JavaTable) -> int:
    """The number of partitions that a table's newest commit has changed: an estimate for the next batch."""
    snapshot = table.currentSnapshot()
    return int(string_map(snapshot.summary()).get("changed-partition-count", 0)) if snapshot is not None else 0


def refuse_many_planned_files(shares: Sequence[Sequence[InputFile]], target: Target, partitions: int) -> None:
    """Raises `NotNative` for a batch whose tasks would write many more files than Spark would.

    `partitions` is the number of the table's partitions into which the batch is expected to write; 0 if unknown.
    """
    size = sum(file.size for share in shares for file in share)
    if target.spread == "partitions" and are_too_many(len(shares) * partitions, partitions, size, target.file_size):
        raise NotNative(
            "each native task would write a file for each partition; Spark first shuffles a partition into one task"
        )


def refuse_many_written_files(sizes: Sequence[int], partitions: int, target: Target) -> None:
    """Raises `NotNative` if tasks have written many more files than Spark would. `sizes` has the bytes of each file."""
    if target.spread == "partitions" and are_too_many(len(sizes), partitions, sum(sizes), target.file_size):
        raise NotNative(
            "native tasks wrote many small files for each partition; Spark first shuffles a partition into one task"
        )


def are_too_many(files: int, partitions: int, size: int, file_size: int) -> bool:
    """True if tasks write far more files than Spark would. `size` is that of all files, `file_size` the target size.

    Spark writes one file for each partition, and more for a large partition.

    Examples:
        >>> are_too_many(4_000, 500, 1 << 30, 512 << 20), are_too_many(4_000, 500, 1 << 40, 512 << 20)
        (True, False)
        >>> are_too_many(1_000, 500, 1 << 30, 512 << 20), are_too_many(96, 12, 1 << 20, 512 << 20)
        (False, False)
    """
    return files > FEW_FILES and files > MAX_RATIO * (partitions + size // file_size) and size < files * SMALL_FILE
