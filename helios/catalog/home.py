"""Finds the configuration file of a script."""

from __future__ import annotations

import re
from pathlib import Path

from helios.errors import Origin

CONFIG_FILE = "helios.toml"
STATE_FOLDER = ".helios"


def find_config(start: Path) -> Path | None:
    """The nearest configuration file in a folder or above it; None if there is none.

    A configuration file is helios.toml, or a pyproject.toml that has a table `[tool.helios]`.
    """
    for folder in (start, *start.parents):
        if (folder / CONFIG_FILE).is_file():
            return folder / CONFIG_FILE
        project = folder / "pyproject.toml"
        if project.is_file() and _has_helios_table(project):
            return project
    return None


def _has_helios_table(project: Path) -> bool:
    text = project.read_bytes().decode("utf-8-sig", errors="replace")
    # Most files only list helios as a dependency. To save time, only a file that may have the table is parsed.
    if "helios" not in text or re.search(r"""\btool["']?\s*(?:\.\s*["']?helios\b|[\]=])""", text) is None:
        return False
    import tomllib

    try:
        tool = tomllib.loads(text).get("tool")
    except tomllib.TOMLDecodeError:
        # An invalid file with a table [tool.helios] is a configuration file too: loading it raises the error.
        return re.search(r"^\s*\[\s*tool\s*\.\s*helios\b", text, re.MULTILINE) is not None
    return isinstance(tool, dict) and "helios" in tool


def project_folder(origin: Origin | None) -> Path:
    """The folder of a script's configuration file; the working directory if there is none."""
    script = Path(origin.file) if origin else None
    start = script.absolute().parent if script and script.is_file() else Path.cwd()
    config = find_config(start)
    return config.parent if config else Path.cwd()
