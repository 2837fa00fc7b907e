"""`sample`: keeps a random part of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from helios.errors import DeclarationError
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits
from helios.model.values import caller


@dataclass(frozen=True, kw_only=True)
class Sample(Step):
    """A random part of the rows. With a seed, the values of a row decide whether it is kept."""

    traits: ClassVar[Traits] = Traits(row_by_row=True, same_columns=True)

    fraction: float
    seed: int | None = None

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return (f"rand() < {self.fraction}",) if self.seed is None else ()

    def text(self) -> str:
        # All digits, as a plan's fingerprint is made of this text.
        fraction = f"{self.fraction:g}" if float(f"{self.fraction:g}") == self.fraction else repr(self.fraction)
        return f"sample({fraction})" if self.seed is None else f"sample({fraction}, seed={self.seed})"


def sample(fraction: float, seed: int | None = None) -> Transform:
    """Keeps a part of the rows: `sample(0.01, seed=7)`.

    With a seed, the values of a row decide whether it is kept; columns with maps or variants do not count. So each
    run keeps the same rows, however the rows are split into batches. Equal rows are all kept or all dropped. Without a
    seed, each run keeps other rows, so `.exactly_once()` refuses the step.

    Args:
        fraction: The part, from 0 to 1.
        seed: A whole number; another seed keeps other rows.

    Raises:
        DeclarationError: The fraction is not a number from 0 to 1, or the seed is not a whole number.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
        raise DeclarationError(
            f"sample({fraction!r}): a fraction is a number from 0 to 1.",
            where=caller(),
            fix="write sample(0.01, seed=7).",
        )
    whole = isinstance(seed, int) and not isinstance(seed, bool) and -(2**63) <= seed < 2**63
    if seed is not None and not whole:
        raise DeclarationError(
            f"sample(seed={seed!r}) is not a whole number of 64 bits.",
            where=caller(),
            fix="write sample(0.01, seed=7).",
        )
    return as_step(Sample(fraction=float(fraction), seed=seed))
