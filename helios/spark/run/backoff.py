"""A catalog or a storage that does not answer: for how long it has been away, and when to try again."""

from __future__ import annotations

import time
from datetime import datetime
from urllib.parse import urlsplit

from helios.catalog.conf import storage_of
from helios.errors import RunError
from helios.plan.nodes import Plan
from helios.spark.run.failover import Choice

FIRST_SECONDS = 0.5
"""The pause before the first new start; each later one is twice as long."""
AT_MOST = 10.0


class Outage:
    """The time since a service was first found away.

    Args:
        limit: For how many seconds it is tried.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._since: float | None = None
        self._clock = ""
        self._tries = 0

    @property
    def lasts(self) -> bool:
        return self._since is not None

    def pause(self, ways: int = 1) -> float | None:
        """Seconds until the next try after one that failed; None when the time is used up.

        Args:
            ways: How many replicas there are: the others are asked at once.
        """
        now = time.monotonic()
        if self._since is None:
            self._since, self._clock, self._tries = now, f"{datetime.now():%H:%M:%S}", 0
        self._tries += 1
        rounds, rest = divmod(self._tries, ways)
        left = self._since + self.limit - now
        if left <= 0:
            return None
        # The last try is when the time is up, not a pause earlier.
        return min(FIRST_SECONDS * 2 ** min(rounds - 1, 10), AT_MOST, left) if rest == 0 else 0.0

    def over(self) -> float | None:
        """Ends it; returns how long it was, None when there was none."""
        since, self._since = self._since, None
        return time.monotonic() - since if since is not None else None

    def told(self, where: str, reason: str, choice: Choice) -> str:
        """The line by which a run tells of it."""
        there = f"; trying {choice.addresses()}" if len(choice) > 1 else ""
        return f"{where} has been away since {self._clock} ({reason}); trying again for {self.limit:g} s{there}"

    def used_up(self, plan: Plan, where: str, reason: str) -> RunError:
        """The failure of a run that has waited for long enough."""
        doctor = " and ".join(f"`helios doctor --catalog {catalog.name}`" for catalog in plan.catalogs)
        return RunError(
            f"{plan.pipeline}: {where} has been away since {self._clock}, for longer than the {self.limit:g} s of "
            f".retry(outage=): {reason}",
            where=plan.origin,
            fix=f"see what answers with {doctor}, and run again: it goes on where it stands, each row once.",
        )


def blamed(reason: str, plan: Plan) -> str:
    """What does not answer, as far as a reason names its address."""
    for catalog in plan.catalogs:
        given = catalog.option("uri") or catalog.option("endpoint") or ()
        addresses = given if isinstance(given, tuple) else (str(given),)
        if any(urlsplit(address).netloc in reason for address in addresses if urlsplit(address).netloc):
            return f"catalog {catalog.name}"
        storage = storage_of(catalog)
        endpoint = urlsplit(str(storage.option("endpoint") or "")).netloc if storage is not None else ""
        if endpoint and endpoint in reason:
            return f"the storage of catalog {catalog.name}"
    return "a catalog or its storage"
