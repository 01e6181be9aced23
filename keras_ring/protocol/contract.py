"""The environment variables through which a launcher configures its ranks.

All programs that start ranks (the launcher, the test harness) build their
environment here, so that there is one list of these names.
"""

from collections.abc import Mapping
from dataclasses import dataclass

RANK = "KERAS_RING_RANK"
SIZE = "KERAS_RING_SIZE"
RENDEZVOUS = "KERAS_RING_RENDEZVOUS"
RENDEZVOUS_FD = "KERAS_RING_RENDEZVOUS_FD"
# The socket on which the launcher says who the members of an elastic job are.
MEMBERSHIP_FD = "KERAS_RING_MEMBERSHIP_FD"
# The number of a process that joins an elastic job that runs.
JOINS_AS = "KERAS_RING_JOINS_AS"
JOB_KEY = "KERAS_RING_JOB_KEY"
# The name of a file with the key, for engines that provide files.
JOB_KEY_FILE = "KERAS_RING_JOB_KEY_FILE"
GENERATION = "KERAS_RING_GENERATION"
# How often the launcher has started the job again; only Python code reads it.
RESTART = "KERAS_RING_RESTART"
# Set by a rank for the processes that it starts (`core.parent_rank`).
PARENT_RANK = "KERAS_RING_PARENT_RANK"
ERROR_FILE = "KERAS_RING_ERROR_FILE"
HOST_ID = "KERAS_RING_HOST_ID"
INTERFACE = "KERAS_RING_INTERFACE"
PORT_RANGE = "KERAS_RING_PORT_RANGE"
START_TIMEOUT = "KERAS_RING_START_TIMEOUT"
LOG_LEVEL = "KERAS_RING_LOG_LEVEL"
# "text" or "json"; only Python code reads it.
LOG_FORMAT = "KERAS_RING_LOG_FORMAT"
TLS = "KERAS_RING_TLS"
AUTOTUNE = "KERAS_RING_AUTOTUNE"
AUTOTUNE_LOG = "KERAS_RING_AUTOTUNE_LOG"
AUTOTUNE_WARMUP_SAMPLES = "KERAS_RING_AUTOTUNE_WARMUP_SAMPLES"
AUTOTUNE_STEPS_PER_SAMPLE = "KERAS_RING_AUTOTUNE_STEPS_PER_SAMPLE"
AUTOTUNE_MAX_SAMPLES = "KERAS_RING_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"
# Variables of `--auto`; only Python code reads them (`auto_options`).
AUTO = "KERAS_RING_AUTO"
AUTO_BATCH = "KERAS_RING_AUTO_BATCH"
AUTO_LEARNING_RATE = "KERAS_RING_AUTO_LEARNING_RATE"
AUTO_WARMUP_EPOCHS = "KERAS_RING_AUTO_WARMUP_EPOCHS"
AUTO_WAIT = "KERAS_RING_AUTO_WAIT"
COLLECTIVE = "KERAS_RING_COLLECTIVE"
MPI = "KERAS_RING_MPI"
FLIGHT_DIRECTORY = "KERAS_RING_FLIGHT_DIRECTORY"
TIMELINE = "KERAS_RING_TIMELINE"
METRICS_TOKEN = "KERAS_RING_METRICS_TOKEN"
# Value of `FLIGHT_DIRECTORY` for no flight records.
NO_FLIGHT_DIRECTORY = "off"

KERAS_ADDRESSES = "KERAS_DISTRIBUTION_JOB_ADDRESSES"
KERAS_SIZE = "KERAS_DISTRIBUTION_NUM_PROCESSES"
KERAS_RANK = "KERAS_DISTRIBUTION_PROCESS_ID"

# Variables that only the launcher sets. A value from outside would belong to
# another job: a rank that starts a job has all of them in its environment.
LAUNCHER_OWNED = frozenset(
    (
        RANK,
        SIZE,
        RENDEZVOUS,
        RENDEZVOUS_FD,
        MEMBERSHIP_FD,
        JOINS_AS,
        JOB_KEY,
        GENERATION,
        PARENT_RANK,
        MPI,
        ERROR_FILE,
        KERAS_ADDRESSES,
        KERAS_SIZE,
        KERAS_RANK,
    )
)


@dataclass(frozen=True, kw_only=True)
class RankContract:
    """The settings that one rank gets from the program that starts it.

    Args:
        rank: Integer, the rank in the job.
        size: Integer, the number of ranks in the job.
        rendezvous: String, `host:port` where rank 0 serves the store.
        job_key: String of 64 hexadecimal characters, the secret of the job. It
            is passed only in the environment of the ranks.
        error_file: String, the file to which the rank writes the error that
            ends it.
        rendezvous_fd: Integer, the descriptor of the listening socket, which
            only rank 0 inherits. `None` for other ranks.
        membership_fd: Integer, the descriptor of the socket on which a rank of
            an elastic job speaks with the launcher. `None` in other jobs.
        joins_as: Integer, the number of a process that joins an elastic job
            that runs. `None` for the ranks at its start.
        host_id: String that replaces the identity of the host, for tests that
            simulate several hosts. Defaults to `None`.
    """

    rank: int
    size: int
    rendezvous: str
    job_key: str
    error_file: str
    rendezvous_fd: int | None = None
    membership_fd: int | None = None
    joins_as: int | None = None
    host_id: str | None = None

    def __repr__(self) -> str:
        """Returns a text without the key, so that no log contains it."""
        return f"RankContract(rank={self.rank}, size={self.size})"

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Returns `base` with the variables of this rank.

        Args:
            base: Environment variables. Those that another launcher has set are
                dropped.
        """
        result = {
            name: value
            for name, value in base.items()
            if name not in LAUNCHER_OWNED
        }
        result[RANK] = str(self.rank)
        result[SIZE] = str(self.size)
        result[RENDEZVOUS] = self.rendezvous
        result[JOB_KEY] = self.job_key
        result[ERROR_FILE] = self.error_file
        if self.rendezvous_fd is not None:
            result[RENDEZVOUS_FD] = str(self.rendezvous_fd)
        if self.membership_fd is not None:
            result[MEMBERSHIP_FD] = str(self.membership_fd)
        if self.joins_as is not None:
            result[JOINS_AS] = str(self.joins_as)
        if self.host_id is not None:
            result[HOST_ID] = self.host_id
        # Keras allows the coordinator's address alone, and only rank 0 has a
        # port at this point.
        result[KERAS_ADDRESSES] = self.rendezvous
        result[KERAS_SIZE] = str(self.size)
        result[KERAS_RANK] = str(self.rank)
        # Python buffers output to a pipe in blocks: it would come late, and
        # that of a killed rank would be lost.
        result.setdefault("PYTHONUNBUFFERED", "1")
        return result
