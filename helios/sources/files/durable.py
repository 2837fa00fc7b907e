"""Syncs local folders."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path | str) -> None:
    """Syncs a folder, so that a power failure does not undo the creation, renaming or deletion of its files."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
