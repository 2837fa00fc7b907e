"""The engine of a pipeline, as its plan tells it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Engine:
    """What reads, computes and writes the rows of a pipeline.

    Attributes:
        native: Whether it is the columnar engine in Spark's tasks.
        why: Why it is Spark; empty where it is not.
        setting: `[spark] native` of the configuration.
    """

    native: bool = False
    why: str = 'native = "off"'
    setting: str = "off"

    def __str__(self) -> str:
        return "native" if self.native else f"spark, because {self.why}"
