"""The heap of a driver on a local master."""

from __future__ import annotations

from pathlib import Path

import pytest

from helios.config import load
from helios.environment import memory
from helios.environment.memory import container_limit, driver_heap, driver_memory_text, local_heap
from helios.spark.session import launch

GB = 1 << 30


@pytest.mark.parametrize(
    ("physical", "limit", "heap", "why"),
    [
        (16 * GB, None, 4 * GB, "a quarter of the 16 GB of this machine"),
        (64 * GB, 8 * GB, 2 * GB, "a quarter of the 8 GB of this container"),
        (8 * GB, 64 * GB, 2 * GB, "a quarter of the 8 GB of this machine"),  # a limit above what is there
        (2 * GB, None, GB, "a quarter of the 2 GB of this machine, 1 GB at least"),
        (512 * GB, None, 16 * GB, "a quarter of the 512 GB of this machine, 16 GB at most"),
        (None, 12 * GB, 3 * GB, "a quarter of the 12 GB of this container"),
        (None, None, 2 * GB, "the memory of this machine is unknown"),
    ],
)
def test_the_heap_is_a_quarter_within_bounds(physical: int | None, limit: int | None, heap: int, why: str) -> None:
    found = local_heap(physical, limit)
    assert (found.bytes, found.reason) == (heap, why)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"memory.max": "6442450944\n"}, 6 * GB),
        ({"memory.max": "max\n"}, None),
        ({"memory/memory.limit_in_bytes": "3221225472\n"}, 3 * GB),
        ({}, None),
    ],
)
def test_the_limit_of_a_container(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert container_limit(tmp_path) == limit


def test_what_the_user_says_wins_and_a_cluster_keeps_sparks_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_physical", lambda: 40 * GB)
    monkeypatch.setattr(memory, "container_limit", lambda: None)
    assert driver_heap().conf == "10240m"

    def conf(toml: str) -> str | None:
        (tmp_path / "helios.toml").write_text(toml)
        config = load(tmp_path)
        started = launch.start_conf(config, [], "").get(launch.DRIVER_MEMORY)
        assert started is None or started in driver_memory_text(config.master, config.spark_conf) or started == "10240m"
        return started

    assert conf("") == "10240m"
    assert conf('[spark.conf]\n"spark.driver.memory" = "3g"') == "3g"
    assert conf('[spark]\nmaster = "spark://host:7077"') is None
    assert "10 GB (a quarter of the 40 GB of this machine)" in driver_memory_text("local[2]", {})
