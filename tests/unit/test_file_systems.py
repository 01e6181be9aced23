import pytest

from keras_ring.keras.agreement import file_systems

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:45 / /home rw shared:2 - nfs4 files:/export/home rw,addr=10.0.0.1
41 40 0:46 / /home/local rw shared:3 - xfs /dev/sdb rw
42 22 0:47 / /mnt/two\\040words rw - fuse.gcsfuse bucket rw
43 22 0:48 / /scratch rw master:4 - lustre 10.0.0.2@tcp:/fs rw
44 22 0:49 / /scratch rw - tmpfs tmpfs rw
"""


@pytest.fixture(autouse=True)
def mounts(tmp_path, monkeypatch):
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS)
    monkeypatch.setattr(file_systems, "_MOUNTS", path)
    return path


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/tmp/cache", None),
        ("/home/me/not/there/yet", "files:/export/home"),
        ("/home", "files:/export/home"),
        ("/homework/cache", None),
        ("/home/local/cache", None),
        ("/mnt/two words/cache", "bucket"),
        # What is mounted over it hides it.
        ("/scratch/cache", None),
    ],
)
def test_the_file_system_of_a_path(path, found):
    assert file_systems.shared_file_system(path) == found


def test_without_a_list_of_mounts_none_is_known(mounts):
    mounts.unlink()
    assert file_systems.shared_file_system("/home/me") is None
