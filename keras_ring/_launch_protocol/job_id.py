"""What a job is called where its secret must not be told."""

import hashlib

_LABEL = b"keras_ring status page"


def job_id(key: str) -> str:
    """Returns the name of a job, as its status pages have it.

    Args:
        key: The job's secret, in hexadecimal.
    """
    return hashlib.sha256(_LABEL + bytes.fromhex(key)).hexdigest()[:12]
