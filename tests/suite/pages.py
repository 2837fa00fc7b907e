"""The Python blocks of the documentation, which tests run or check."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    """The Python blocks of a page, by its path: `docs/writing.md`."""
    return re.findall(r"^```python[^\n]*\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
