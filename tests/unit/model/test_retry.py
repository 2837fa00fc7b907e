"""Retries: how often, and the pauses in between."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from helios.model import retry
from helios.model.retry import NEVER, CommitRetries, Retry


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    # Not `time.sleep` itself, by which threads of other tests sleep too.
    monkeypatch.setattr(retry, "time", SimpleNamespace(sleep=found.append))
    return found


def test_by_default_a_sink_retries_after_100_200_and_400_ms(waits: list[float]) -> None:
    told: list[int] = []
    retries = CommitRetries(Retry(), lambda: told.append(1))
    while retries.wait():
        pass
    assert waits == pytest.approx([0.1, 0.2, 0.4])
    assert retries.used == len(told) == 3


def test_two_loops_share_one_budget(waits: list[float]) -> None:
    retries = CommitRetries(Retry(retries=3, backoff=1.0))
    tries = 0
    outer = True
    while outer:
        inner = True
        while inner:
            tries += 1
            inner = retries.wait()
        outer = retries.wait()
    assert tries == 4
    assert waits == [1.0, 2.0, 4.0]


def test_without_retries_nothing_waits(waits: list[float]) -> None:
    assert CommitRetries(NEVER).wait() is False
    assert waits == []


def test_a_retry_without_a_pause_counts(waits: list[float]) -> None:
    retries = CommitRetries(Retry(retries=1))
    assert (retries.wait(pause=False), retries.wait(pause=False)) == (True, False)
    assert (retries.used, waits) == (1, [])
