"""What `keras-ring run` says of how it was started itself."""

import pytest

from keras_ring.launch.cli import cli

WORDS = ["run", "-np", "1", "--", "true"]


@pytest.fixture
def said(monkeypatch, capfd):
    def run(variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert cli.main(WORDS) == 0
        return capfd.readouterr().err

    return run


def test_one_of_several(said):
    err = said({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2"})
    assert "this is process 2 of 4 that mpirun (Open MPI) has started" in err
    assert "leave out either keras-ring run or mpirun (Open MPI)" in err


@pytest.mark.parametrize(
    "variables",
    [
        {},
        # A script of sbatch, a pod of a sweep, and a rank that starts a job.
        {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"},
        {"JOB_COMPLETION_INDEX": "3"},
        {"KERAS_RING_SIZE": "1", "WORLD_SIZE": "4", "RANK": "1"},
    ],
)
def test_what_is_as_it_should_be(said, variables):
    assert "each of them starts a job" not in said(variables)
