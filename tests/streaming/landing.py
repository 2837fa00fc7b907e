"""How tests of files write them, and read what came of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from helios.sources.files.declare import FilesSource


def land(folder: Path, name: str, content: bytes | str) -> Path:
    """Writes a file; returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def read(world: Any, source: Any) -> tuple[Counter[tuple[Any, ...]], list[tuple[str, str]]]:
    """The rows of a source, or of a stream with one, and what is set aside: the text of each row, and why."""
    source = source.on_bad_row("quarantine") if isinstance(source, FilesSource) else source
    world.run(source >> world.sink("a.t").quarantine("a.q"))
    aside = world.rows("a.q", "payload", "reason").elements() if world.catalog.exists("a.q") else ()
    return world.rows("a.t"), sorted((json.loads(payload)["text"], reason) for payload, reason in aside)
