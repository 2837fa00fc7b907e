"""Runs the checks of `helios doctor`, each with a time limit, and explains their failures."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from helios.errors import HeliosError


@dataclass(frozen=True)
class Check:
    """The result of a check. `ok` is None if the check could not be made, does not apply, or only advises."""

    name: str
    ok: bool | None
    detail: str
    milliseconds: float | None = None
    fix: str | None = None


def run_check(name: str, check: Callable[[], str], location: str = "", fallback_fix: str | None = None) -> Check:
    """Runs a check with a time limit.

    Args:
        check: Makes the check. It returns the detail to show, and raises an error if the check fails.
        location: The address or location that is checked, for the message of a failure.
        fallback_fix: The fix to show if the cause of a failure is unknown.
    """
    from helios.catalog.diagnosis import brief, diagnose, evidence
    from helios.catalog.probe import with_time_limit

    start = time.perf_counter()
    fix: str | None = None
    try:
        detail, ok = with_time_limit(check), True
    except Exception as error:
        # The libraries of storages and catalogs have no common base class for errors.
        ok = False
        cause = error.__cause__ if isinstance(error, HeliosError) else error
        diagnosis = diagnose(cause) if cause is not None else None
        if cause is not None and diagnosis is not None:
            detail, fix = f"{diagnosis.cause} ({evidence(cause)})", f"{diagnosis.fix}."
        elif isinstance(error, HeliosError):
            detail, fix = error.what, error.fix or fallback_fix
        else:
            detail, fix = brief(error), fallback_fix
        detail = f"{location}: {detail}" if location else detail
    return Check(name, ok, detail, (time.perf_counter() - start) * 1000, fix)
