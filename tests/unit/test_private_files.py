"""Files that only the user of the process can open: csi.sql."""

import os
import stat
from pathlib import Path

import pytest

from csi.errors import StoreError
from csi.sql import create_private_file, make_private_dir, open_private_file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_belongs_to_its_user_alone(tmp_path: Path) -> None:
    create_private_file(tmp_path / "new.db")
    assert mode(tmp_path / "new.db") == 0o600


def test_an_existing_file_keeps_content_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    path.write_text("content")
    path.chmod(0o440)
    create_private_file(path)
    assert (path.read_text(), mode(path)) == ("content", 0o440)


def test_a_link_to_a_file_that_does_not_exist_is_followed(tmp_path: Path) -> None:
    os.symlink(tmp_path / "elsewhere.db", tmp_path / "csi.db")
    create_private_file(tmp_path / "csi.db")
    assert mode(tmp_path / "elsewhere.db") == 0o600


def test_a_lock_file_keeps_its_content(tmp_path: Path) -> None:
    for text in ("1\n", "2\n"):
        with open_private_file(tmp_path / "lock") as file:
            assert file.read() == ("" if text == "1\n" else "1\n")
            file.write(text)
    assert mode(tmp_path / "lock") == 0o600


def test_a_directory_that_cannot_be_created_is_named_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/below cannot be created: .*; choose another"):
        make_private_dir(tmp_path / "file" / "below", "choose another")
