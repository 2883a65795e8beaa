"""The key file of a SQLite queue: private, complete from its first moment, the same for all that start together."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from csi.config.key_files import read_key, read_or_create_key
from csi.errors import StoreError


def test_it_is_made_once_and_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "state" / "queue.key"
    assert read_key(path) is None
    before = os.umask(0)
    try:
        key = read_or_create_key(path)
    finally:
        os.umask(before)
    assert len(key) == 64
    assert read_key(path) == read_or_create_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["queue.key"]


def test_all_that_start_together_have_the_same_key(tmp_path):
    for number in range(10):
        path = tmp_path / str(number) / "queue.key"
        with ThreadPoolExecutor(8) as starting:
            assert len(set(starting.map(read_or_create_key, [path] * 8))) == 1


def test_two_installations_have_different_keys(tmp_path):
    assert read_or_create_key(tmp_path / "a" / "queue.key") != read_or_create_key(tmp_path / "b" / "queue.key")


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("k" * 64)
    (tmp_path / "elsewhere").chmod(0o600)
    (tmp_path / "queue.key").symlink_to(tmp_path / "elsewhere")
    for get in (read_key, read_or_create_key):
        with pytest.raises(StoreError, match="cannot be read"):
            get(tmp_path / "queue.key")


def test_a_key_that_others_can_read_or_that_is_empty_is_refused(tmp_path):
    path = tmp_path / "queue.key"
    path.write_text("k" * 64)
    path.chmod(0o644)
    with pytest.raises(StoreError, match="other users"):
        read_or_create_key(path)
    path.write_text("")
    path.chmod(0o600)
    with pytest.raises(StoreError, match="delete it"):
        read_or_create_key(path)


def test_a_directory_in_its_place_is_a_sentence(tmp_path):
    (tmp_path / "queue.key").mkdir(mode=0o700)
    with pytest.raises(StoreError):
        read_or_create_key(tmp_path / "queue.key")
