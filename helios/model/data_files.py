"""Data files of an Iceberg sink: their size, compression, order and distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self, TypeAlias, get_args

from helios.errors import DeclarationError
from helios.model.arguments import listed, one_of, text
from helios.model.values import caller, size


class Profile(NamedTuple):
    """The settings of a `.tune` profile.

    Attributes:
        rows: The rows of a batch.
        every: The seconds between batches.
        file_size: The bytes of a data file.
    """

    rows: int
    every: float
    file_size: int


ProfileName: TypeAlias = Literal["low_latency", "balanced", "high_throughput"]
Codec: TypeAlias = Literal["none", "snappy", "gzip", "lz4", "zstd", "brotli"]
Distribution: TypeAlias = Literal["none", "hash", "range"]

PROFILES: dict[ProfileName, Profile] = {
    "low_latency": Profile(1_000, 10.0, 32 << 20),
    "balanced": Profile(10_000, 60.0, 128 << 20),
    "high_throughput": Profile(100_000, 300.0, 512 << 20),
}
DEFAULT_FILE_SIZE = 128 << 20
CODECS: tuple[Codec, ...] = get_args(Codec)
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)


@dataclass(frozen=True, kw_only=True)
class DataFiles:
    """The settings of a sink's data files; None leaves a setting to the table."""

    tuning: ProfileName | None = None
    file_size: int | None = None
    codec: Codec | None = None
    codec_level: int | None = None
    sort: tuple[str, ...] = ()
    distributes: Distribution | None = None

    def tune(self, profile: ProfileName) -> Self:
        """Sets the rows of a batch, the time between batches and the file size together.

        An explicit `flush` or `target_file_size` overrides the value of the profile.

        Args:
            profile: "low_latency" (1,000 rows, 10 s, 32 MB), "balanced" (10,000, 60 s, 128 MB) or "high_throughput"
                (100,000, 300 s, 512 MB).
        """
        return replace(self, tuning=one_of(profile, PROFILES, "tune"))

    def target_file_size(self, bytes: int | str) -> Self:
        """Sets the size of data files: `target_file_size("256MB")`; in new tables by default 128 MB."""
        return replace(self, file_size=size(bytes, "target_file_size"))

    def compression(self, codec: Codec, level: int | None = None) -> Self:
        """Sets the codec of data files: none, snappy, gzip, lz4, zstd (the default), brotli.

        Args:
            codec: The codec; `check` refuses a codec that the file format's writer does not support.
            level: The level of gzip (1 to 9) or zstd (1 to 22).
        """
        if level is not None and (isinstance(level, bool) or not isinstance(level, int)):
            raise DeclarationError(
                f"compression(level={level!r}) must be a whole number.",
                where=caller(),
                fix='write compression("zstd", 9).',
            )
        return replace(self, codec=one_of(codec, CODECS, "compression"), codec_level=level)

    def sort_by(self, *columns: str | Sequence[str]) -> Self:
        """Sets the order of rows in data files: `sort_by("country", "ts desc")`."""
        if not listed(columns):
            raise DeclarationError("sort_by() needs at least one column.", where=caller(), fix='write sort_by("ts").')
        return replace(self, sort=tuple(text(column, "sort_by") for column in listed(columns)))

    def distribution(self, mode: Distribution) -> Self:
        """Sets how rows are distributed to writers: "none", "hash" (by partition), "range" (by partition and order)."""
        return replace(self, distributes=one_of(mode, DISTRIBUTIONS, "distribution"))

    @property
    def profile(self) -> Profile | None:
        return PROFILES[self.tuning] if self.tuning else None

    @property
    def bytes_per_file(self) -> int | None:
        """The declared target file size; None without one: an existing table then keeps its own."""
        return self.file_size or (self.profile.file_size if self.profile else None)
