"""The public name of a job, which does not reveal its secret."""

import hashlib

_LABEL = b"keras_ring status page"


def job_id(key: str) -> str:
    """Returns the name of a job, as in its status pages.

    Args:
        key: String, the job's secret, in hexadecimal.
    """
    return hashlib.sha256(_LABEL + bytes.fromhex(key)).hexdigest()[:12]
