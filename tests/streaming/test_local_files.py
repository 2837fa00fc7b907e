"""Hadoop's local files with permissions that Java sets, beside Hadoop's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.promise("files")


def made(world: Any, files: Any, path: Path, mode: str) -> tuple[int, int, int]:
    """The modes of a folder, a file and the sums of it that a file system makes, and then changes."""
    hadoop = world.spark._jvm.org.apache.hadoop.fs
    permission = hadoop.permission.FsPermission(mode)
    file = hadoop.Path(f"file://{path}/f")
    assert files.mkdirs(hadoop.Path(f"file://{path}"), permission)
    out = files.create(file, permission, True, 4096, 1, 32 << 20, None)
    out.write(bytearray(b"x"))
    out.close()
    found = [path.stat().st_mode, (path / "f").stat().st_mode, (path / ".f.crc").stat().st_mode]
    files.setPermission(file, permission)
    assert (path / "f").stat().st_mode & 0o7777 == int(mode, 8)
    assert files.getFileStatus(file).getPermission().toShort() == int(mode, 8)
    return found[0], found[1], found[2]


@pytest.mark.parametrize("mode", ["644", "600", "777", "750", "1777", "400"])
@pytest.mark.cases(landing="644")
def test_permissions_are_those_of_hadoop(world: Any, mode: str) -> None:
    jvm, folder = world.spark._jvm, world.folder / "a b"
    conf = world.spark._jsparkSession.sessionState().newHadoopConf()
    ours = jvm.org.apache.hadoop.fs.FileSystem.getLocal(conf)
    assert ours.getClass().getName() == "helios.LocalFiles"
    hadoops = jvm.org.apache.hadoop.fs.LocalFileSystem()
    hadoops.initialize(jvm.java.net.URI("file:///"), jvm.org.apache.hadoop.conf.Configuration())
    assert made(world, ours, folder / "ours", mode) == made(world, hadoops, folder / "hadoops", mode)


def test_a_file_that_is_not_there_or_not_ones_own_is_an_error(world: Any) -> None:
    hadoop = world.spark._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.getLocal(world.spark._jsparkSession.sessionState().newHadoopConf())
    with pytest.raises(Exception, match="NoSuchFileException"):
        files.setPermission(hadoop.Path(f"file://{world.folder}/gone"), hadoop.permission.FsPermission("644"))
    link = world.folder / "link"
    os.symlink(world.folder / "helios.toml", link)
    (world.folder / "helios.toml").write_text("")
    files.setPermission(hadoop.Path(f"file://{link}"), hadoop.permission.FsPermission("600"))
    assert (world.folder / "helios.toml").stat().st_mode & 0o777 == 0o600, "as chmod, it follows links"
