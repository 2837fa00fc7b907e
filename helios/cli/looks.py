"""One check of the doctor, with its duration and a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from helios.errors import HeliosError


@dataclass(frozen=True)
class Check:
    """One check of the doctor; `ok` is None where the check could not be made."""

    name: str
    ok: bool | None
    detail: str
    milliseconds: float | None = None
    fix: str | None = None


def timed(name: str, look: Callable[[], str], where: str = "", otherwise: str | None = None) -> Check:
    """Runs a check with a time limit.

    Args:
        name: What is checked.
        look: The check; it returns the detail to show.
        where: The address or location that it checks.
        otherwise: The fix of a failure whose cause is unknown.
    """
    from helios.catalog.diagnosis import brief, diagnose, evidence
    from helios.catalog.probe import bounded

    began = time.perf_counter()
    fix: str | None = None
    try:
        detail, ok = bounded(look), True
    except Exception as error:
        # Clients of storages and catalogs raise the errors of their libraries, which have no common root.
        ok = False
        cause = error.__cause__ if isinstance(error, HeliosError) else error
        diagnosis = diagnose(cause) if cause is not None else None
        if cause is not None and diagnosis is not None:
            detail, fix = f"{diagnosis.cause} ({evidence(cause)})", f"{diagnosis.fix}."
        elif isinstance(error, HeliosError):
            detail, fix = error.what, error.fix or otherwise
        else:
            detail, fix = brief(error), otherwise
        detail = f"{where}: {detail}" if where else detail
    return Check(name, ok, detail, (time.perf_counter() - began) * 1000, fix)
