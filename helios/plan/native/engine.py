"""The engine of a pipeline, as its plan shows it."""

from __future__ import annotations

from dataclasses import dataclass

MIN_NATIVE_BYTES = 8 << 20
"""The size of a batch's files, in bytes, below which Spark is faster: the columnar engine must first start in Spark's
Python workers."""


@dataclass(frozen=True)
class Engine:
    """The engine that reads, computes and writes the rows of a pipeline.

    Attributes:
        native: Whether the columnar engine runs in Spark's tasks; otherwise Spark itself runs the pipeline.
        why: Why Spark itself runs the pipeline; empty if `native`.
        setting: `[spark] native` of the configuration.
    """

    native: bool = False
    why: str = 'native = "off"'
    setting: str = "off"

    @property
    def min_native_bytes(self) -> int:
        """The size of a batch's files, in bytes, below which Spark runs the batch."""
        return 0 if self.setting == "require" else MIN_NATIVE_BYTES

    def as_json(self) -> dict[str, bool | str | int | None]:
        return {
            "native": self.native,
            "why": self.why or None,
            "from_bytes": self.min_native_bytes if self.native else None,
        }

    def __str__(self) -> str:
        if not self.native:
            return f"spark, because {self.why}"
        smallest = self.min_native_bytes
        return f"native, and spark for batches of less than {smallest >> 20} MB" if smallest else "native"
