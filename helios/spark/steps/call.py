"""A callable as a step: a function of the user that takes a DataFrame and returns one."""

from __future__ import annotations

import os
import traceback

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from helios.errors import DeclarationError, HeliosError, InputError, Origin
from helios.model.call import Call
from helios.spark.steps.steps import Scope


def apply_step(df: DataFrame, step: Call, scope: Scope) -> DataFrame:
    try:
        result = step.function(df)
    except (HeliosError, AnalysisException):
        raise
    except Exception as error:
        raise InputError(
            f"{step.name} raised {type(error).__name__}: {error}", where=_raised_at(error) or step.origin
        ) from error
    if not isinstance(result, DataFrame):
        raise DeclarationError(
            f"{step.name} returned {type(result).__name__}, not a DataFrame.",
            where=step.origin,
            fix="return the transformed DataFrame.",
        )
    return result


def _raised_at(error: BaseException) -> Origin | None:
    """The deepest line of the user's own code in an error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "site-packages" not in f.filename and f"helios{os.sep}spark" not in f.filename]
    return Origin(own[-1].filename, own[-1].lineno or 0) if own else None
