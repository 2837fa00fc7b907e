"""`DoctorCheck`, a check of `helios doctor` for a source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class DoctorCheck:
    """One check of a service.

    Attributes:
        name: The name of the service or the part of it that is checked, such as "broker localhost:9092".
        check: The function that performs the check. It returns the result as text, or raises an error if the check
            fails.
        address: The address of the service.
        remedy: The advice to the user if the check fails for an unknown cause.
        required_by_jvm_checks: Whether the checks that need a JVM depend on this check. They are skipped if all checks
            with this flag fail.
    """

    name: str
    check: Callable[[], str]
    address: str = ""
    remedy: str | None = None
    required_by_jvm_checks: bool = False
