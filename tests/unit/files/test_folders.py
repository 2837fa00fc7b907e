"""Folders that a source reads too."""

from __future__ import annotations

import pytest

from helios import Files


@pytest.mark.parametrize(
    ("path", "folder", "overlaps"),
    [
        ("/in", "/in", True),
        ("/in", "/in/new", True),
        ("/in/new", "/in", True),
        ("/in", "/in2", False),
        ("/in/2*/", "/in/2024", True),
        ("/in/2*/", "/in/1999", False),
        ("s3a://bucket/in", "s3://bucket/in", True),
    ],
)
def test_folders_that_have_the_same_files(path: str, folder: str, overlaps: bool) -> None:
    assert Files.source(path, "json", schema="id bigint").overlaps(folder) is overlaps
