"""helios.toml (or `[tool.helios]` in pyproject.toml): what is read, what is refused, and how table names resolve."""

from helios.config.config import Config, load, resolve

__all__ = ["Config", "load", "resolve"]
