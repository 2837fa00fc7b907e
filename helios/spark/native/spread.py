"""The distribution of a batch's files over tasks, and limits to the number of files that these write."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from helios.native.program import NotNative
from helios.native.work import InputFile, Target
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.native.fields import texts

SHARE = 2 << 20
"""Bytes below which a task is not worth its start."""
LARGEST_SHARE = 512 << 20
"""Bytes of files above which a task is another task's work."""
SORTED_SHARE = 32 << 20
"""The same of a table with a sort order: a task sorts its rows in memory. Spark writes so few as one file, too."""
FEW_FILES = 100
TIMES = 3
SMALL_FILE = 16 << 20
"""Files are many where they are above `FEW_FILES`, above so many times those that Spark writes, and small."""


def shares_of(files: Sequence[InputFile], target: Target, cores: int) -> list[list[InputFile]]:
    """The files of each task.

    Args:
        files: The files.
        target: The table that is written.
        cores: The tasks that run at a time.

    Raises:
        NotNative: The rows of several tasks would have to be brought together.
    """
    if target.spread == "together":
        if sum(file.size for file in files) > SORTED_SHARE:
            raise NotNative(
                "by its sort order or distribution the table takes the rows of several tasks together, and a batch has "
                f"more than {SORTED_SHARE >> 20} MB"
            )
        return [list(files)] if files else []
    return shared(files, cores, SORTED_SHARE if target.sort else LARGEST_SHARE)


def shared(files: Iterable[InputFile], cores: int, most: int = LARGEST_SHARE) -> list[list[InputFile]]:
    """Shares of about equally many bytes, one for a task.

    Examples:
        >>> files = [InputFile(str(n), size << 20, 1) for n, size in enumerate((9, 30, 8, 12))]
        >>> [[file.path for file in share] for share in shared(files, 2)]
        [['1'], ['3', '0', '2']]
        >>> [len(share) for share in shared([InputFile(str(n), 1 << 20, 1) for n in range(10)], 2)]
        [5, 5]
    """
    largest = sorted(files, key=lambda file: file.size, reverse=True)
    total = sum(file.size for file in largest)
    count = min(len(largest), cores, max(1, total // SHARE))
    count = min(len(largest), max(count, math.ceil(total / most)))
    shares: list[list[InputFile]] = [[] for _ in range(count)]
    sizes = [0] * count
    for file in largest:
        smallest = sizes.index(min(sizes))
        shares[smallest].append(file)
        sizes[smallest] += max(1, file.size)
    return shares


# the number of files


def last_partitions(table: JavaTable) -> int:
    """The number of partitions that the newest commit of a table has changed: an estimate for the next batch."""
    snapshot = table.currentSnapshot()
    return int(texts(snapshot.summary()).get("changed-partition-count", 0)) if snapshot is not None else 0


def refuse_many(shares: Sequence[Sequence[InputFile]], target: Target, partitions: int) -> None:
    """Refuses a batch whose tasks would write many more files than Spark's.

    Raises:
        NotNative: They would.
    """
    size = sum(file.size for share in shares for file in share)
    if target.spread == "partitions" and are_many(len(shares) * partitions, partitions, size, target.file_size):
        raise NotNative(
            "each of its tasks would write a file for each partition, and Spark brings the rows of a partition together"
        )


def refuse_written(sizes: Sequence[int], partitions: int, target: Target) -> None:
    """The same, for written files.

    Args:
        sizes: Their bytes.
        partitions: How many partitions they are of.
        target: Their table.

    Raises:
        NotNative: They are many more than Spark's.
    """
    if target.spread == "partitions" and are_many(len(sizes), partitions, sum(sizes), target.file_size):
        raise NotNative(
            "its tasks have written many small files for each partition, and Spark brings the rows of a partition "
            "together"
        )


def are_many(files: int, partitions: int, size: int, file_size: int) -> bool:
    """True if there are far more files than Spark writes: one for each partition, and more of large ones.

    Examples:
        >>> are_many(4_000, 500, 1 << 30, 512 << 20), are_many(4_000, 500, 1 << 40, 512 << 20)
        (True, False)
        >>> are_many(1_000, 500, 1 << 30, 512 << 20), are_many(96, 12, 1 << 20, 512 << 20)
        (False, False)
    """
    return files > FEW_FILES and files > TIMES * (partitions + size // file_size) and size < files * SMALL_FILE
