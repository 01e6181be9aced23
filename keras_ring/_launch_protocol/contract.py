"""The environment variables through which a launcher speaks to its ranks.

Whoever starts ranks (the launcher, the test harness) builds their environment
here, so that there is one list of these names.
"""

from collections.abc import Mapping
from dataclasses import dataclass

RANK = "KERAS_RING_RANK"
SIZE = "KERAS_RING_SIZE"
RENDEZVOUS = "KERAS_RING_RENDEZVOUS"
RENDEZVOUS_FD = "KERAS_RING_RENDEZVOUS_FD"
JOB_KEY = "KERAS_RING_JOB_KEY"
# Names a file that holds it, for engines that hand out files.
JOB_KEY_FILE = "KERAS_RING_JOB_KEY_FILE"
GENERATION = "KERAS_RING_GENERATION"
# Set by a rank for what it starts itself (`_runtime.parent_rank`).
PARENT_RANK = "KERAS_RING_PARENT_RANK"
ERROR_FILE = "KERAS_RING_ERROR_FILE"
HOST_ID = "KERAS_RING_HOST_ID"
INTERFACE = "KERAS_RING_INTERFACE"
PORT_RANGE = "KERAS_RING_PORT_RANGE"
START_TIMEOUT = "KERAS_RING_START_TIMEOUT"
LOG_LEVEL = "KERAS_RING_LOG_LEVEL"
# "text" or "json"; Python alone reads it.
LOG_FORMAT = "KERAS_RING_LOG_FORMAT"
TLS = "KERAS_RING_TLS"
AUTOTUNE = "KERAS_RING_AUTOTUNE"
AUTOTUNE_LOG = "KERAS_RING_AUTOTUNE_LOG"
AUTOTUNE_WARMUP_SAMPLES = "KERAS_RING_AUTOTUNE_WARMUP_SAMPLES"
AUTOTUNE_STEPS_PER_SAMPLE = "KERAS_RING_AUTOTUNE_STEPS_PER_SAMPLE"
AUTOTUNE_MAX_SAMPLES = "KERAS_RING_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"
# Those of `--auto`; Python alone reads them (`auto_options`).
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

# Set by the launcher alone: a value from outside would belong to another job
# (a rank that starts a job of its own has all of these in its environment).
LAUNCHER_OWNED = frozenset(
    (
        RANK,
        SIZE,
        RENDEZVOUS,
        RENDEZVOUS_FD,
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
    """What one rank is told by whoever starts it.

    Args:
        rank: Index of the rank in the job.
        size: Number of ranks in the job.
        rendezvous: `host:port` where rank 0 serves the store.
        job_key: 64 hexadecimal characters, the secret of the job. Goes
            nowhere but into the environment of the ranks.
        error_file: Where the rank writes the error that ends it.
        rendezvous_fd: The listening socket, inherited by rank 0 alone.
        host_id: Overrides the identity of the host, for tests that pretend to
            have several.
    """

    rank: int
    size: int
    rendezvous: str
    job_key: str
    error_file: str
    rendezvous_fd: int | None = None
    host_id: str | None = None

    def __repr__(self) -> str:
        """Names the rank and leaves the key out, so no log can hold it."""
        return f"RankContract(rank={self.rank}, size={self.size})"

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Returns `base` with the variables of this rank in place.

        Args:
            base: The environment to start from. What another launcher left in
                it is dropped.
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
        if self.host_id is not None:
            result[HOST_ID] = self.host_id
        # Keras allows the coordinator's address alone, and only rank 0 has a
        # port at this point.
        result[KERAS_ADDRESSES] = self.rendezvous
        result[KERAS_SIZE] = str(self.size)
        result[KERAS_RANK] = str(self.rank)
        # A pipe makes Python keep output back in blocks: it would come late,
        # and that of a killed rank never.
        result.setdefault("PYTHONUNBUFFERED", "1")
        return result
