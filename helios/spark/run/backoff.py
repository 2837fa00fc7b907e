"""Back-off during an outage of a catalog or storage: how long to retry, and the pauses in between."""

from __future__ import annotations

import time
from datetime import datetime
from urllib.parse import urlsplit

from helios.catalog.conf import storage_of
from helios.errors import RunError
from helios.model.retry import outage_pause
from helios.plan.nodes import Plan
from helios.sources.kinds import is_outage_message
from helios.spark.run.failover import ReplicaChoice


class Outage:
    """The current outage of a service, if there is one; a run retries for `limit` seconds."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._since: float | None = None
        self._began_at = ""
        self._attempts = 0

    @property
    def ongoing(self) -> bool:
        return self._since is not None

    def pause(self, replicas: int = 1) -> float | None:
        """The seconds to wait after a failed attempt; None if the limit was reached before the end of a round.

        A round tries all replicas, and a pause comes only after a round.
        """
        now = time.monotonic()
        if self._since is None:
            self._since, self._began_at, self._attempts = now, f"{datetime.now():%H:%M:%S}", 0
        self._attempts += 1
        rounds, attempts_in_round = divmod(self._attempts, replicas)
        remaining = self._since + self.limit - now
        if attempts_in_round != 0:
            return 0.0
        # The last round begins exactly at the limit.
        return min(outage_pause(rounds), remaining) if remaining > 0 else None

    def end(self) -> float | None:
        """Ends the outage; returns its seconds, or None if there was none."""
        since, self._since = self._since, None
        return time.monotonic() - since if since is not None else None

    def message(self, where: str, reason: str, choice: ReplicaChoice) -> str:
        """The message of the `waiting` event."""
        replica = f"; trying {choice.addresses()}" if len(choice) > 1 else ""
        outage = f"{where} has been away since {self._began_at} ({reason})"
        return f"{outage}; retrying for {self.limit:g} s from then{replica}"

    def limit_error(self, plan: Plan, where: str, reason: str) -> RunError:
        """The error of a run whose limit is reached."""
        doctor = " and ".join(f"`helios doctor --catalog {catalog.name}`" for catalog in plan.catalogs)
        return RunError(
            f"{plan.pipeline}: {where} has been away since {self._began_at}, for longer than the {self.limit:g} s of "
            f".retry(outage=): {reason}",
            where=plan.origin,
            fix=f"check it with {doctor}, or a source with `helios doctor SCRIPT`, and run again: the run continues "
            "where it stopped, with each row once.",
        )


def unavailable_service(reason: str, plan: Plan) -> str:
    """The name of the service whose address the reason contains; without an address, all services that it may be."""
    for catalog in plan.catalogs:
        option = catalog.option("uri") or catalog.option("endpoint") or ()
        addresses = option if isinstance(option, tuple) else (str(option),)
        if any(urlsplit(address).netloc in reason for address in addresses if urlsplit(address).netloc):
            return f"catalog {catalog.name}"
        storage = storage_of(catalog)
        endpoint = urlsplit(str(storage.option("endpoint") or "")).netloc if storage is not None else ""
        if endpoint and endpoint in reason:
            return f"the storage of catalog {catalog.name}"
    for read in plan.reads:
        for name, address in read.source.addresses.items():
            if urlsplit(address).netloc in reason:
                return f"{name} at {address}"
    services = [*(read.source.service for read in plan.reads), plan.write.sink.service]
    names = list(dict.fromkeys(service for service in services if service is not None))
    return " or ".join(names) if names and is_outage_message(reason) else "a catalog or its storage"
