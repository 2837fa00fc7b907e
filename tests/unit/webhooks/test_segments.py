"""Deliveries on disk."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pytest

from helios.errors import RunError
from helios.sources.webhook.segments import Segments, is_taken

pytestmark = pytest.mark.promise("webhook")


def line(delivery: str) -> tuple[str, bytes]:
    return delivery, json.dumps({"_webhook_id": delivery}).encode()


def stored(folder: Path) -> list[str]:
    files = sorted(file for file in folder.glob("*.json") if not file.name.startswith("."))
    return [json.loads(text)["_webhook_id"] for file in files for text in file.read_text().splitlines()]


def test_a_segment_is_shown_when_it_is_whole(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    assert segments.open() == {}
    segments.append([line("a"), line("b")])
    assert stored(tmp_path) == []
    assert segments.age > 0
    segments.seal()
    assert (stored(tmp_path), segments.age) == (["a", "b"], 0)
    segments.append([line("c")])
    segments.close()
    assert stored(tmp_path) == ["a", "b", "c"]
    assert set(Segments(tmp_path).open()) == {"a", "b", "c"}


def test_what_a_receiver_that_died_has_left(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    segments.open()
    segments.append([line("a"), line("b")])
    left = next(tmp_path.glob(".open-*"))
    left.write_bytes(left.read_bytes() + b'{"_webhook_id": "to')  # never acknowledged
    segments._lock.release()  # type: ignore[union-attr]  # as the kernel does for a process that is gone
    assert set(Segments(tmp_path).open()) == {"a", "b"}
    assert stored(tmp_path) == ["a", "b"]
    assert not list(tmp_path.glob(".open-*"))


def test_a_large_segment_is_sealed(tmp_path: Path) -> None:
    segments = Segments(tmp_path, seal_size=50)
    segments.open()
    for number in range(6):
        segments.append([line(str(number))])
        if segments.due:
            segments.seal()
    assert stored(tmp_path) == ["0", "1", "2", "3", "4", "5"][: len(stored(tmp_path))]
    assert len(list(tmp_path.glob("[0-9]*.json"))) >= 2


def test_one_receiver_at_a_time(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    segments.open()
    assert is_taken(tmp_path)
    with pytest.raises(RunError, match="another receiver writes"):
        Segments(tmp_path).open()
    segments.close()
    assert not is_taken(tmp_path)


def test_a_full_disk_keeps_nothing_of_the_delivery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = Segments(tmp_path)
    segments.open()
    segments.append([line("a")])
    real = os.fsync
    calls = []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        segments.append([line("b")])
    segments.append([line("c")])
    segments.close()
    assert stored(tmp_path) == ["a", "c"]
    assert set(Segments(tmp_path).open()) == {"a", "c"}


def test_ids_outlive_their_segments_for_the_window(tmp_path: Path) -> None:
    segments = Segments(tmp_path, window=100)
    segments.open()
    segments.append([line("a")])
    segments.close()
    next(tmp_path.glob("[0-9]*.json")).unlink()  # a run has committed it
    assert set(Segments(tmp_path, window=100).open()) == {"a"}
    for file in (tmp_path / ".ids").iterdir():
        os.utime(file, (time.time() - 101, time.time() - 101))
    assert Segments(tmp_path, window=100).open() == {}
    assert not list((tmp_path / ".ids").iterdir())
