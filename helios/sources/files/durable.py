"""Syncs local folders."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path | str) -> None:
    """Syncs a folder, so that files which were created, renamed or deleted in it stay so after a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
