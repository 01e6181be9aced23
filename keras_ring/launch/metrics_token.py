"""The secret that lets Prometheus read the metrics of a job."""

import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from keras_ring.launch.usage import UsageError
from keras_ring.protocol import contract

_EXPECTED = "at least 16 characters, of letters, digits and -._~+/="
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/=]{16,}")


@dataclass(frozen=True)
class Token:
    """The secret of a metrics server.

    Args:
        text: String, the secret that clients have to send.
        path: Path of the file with the secret. `None` if it is in the
            environment.
    """

    text: str
    path: Path | None

    def __repr__(self) -> str:
        """Returns a text without the secret, so that no log contains it."""
        return f"Token(path={self.path})"


def find_token(environment: Mapping[str, str]) -> Token:
    """Returns the secret that the user has set, or that of a file.

    The file is made if it does not exist, and is kept, so that the
    configuration of Prometheus is valid for the next job.

    Args:
        environment: The environment variables of the launcher.

    Raises:
        UsageError: If the secret is invalid, or others can read it.
    """
    text = environment.get(contract.METRICS_TOKEN)
    if text is not None:
        if _TOKEN.fullmatch(text) is None:
            raise UsageError(
                f"{contract.METRICS_TOKEN} is no token: expected {_EXPECTED}"
            )
        return Token(text, None)
    path = _path(environment)
    try:
        text = _read(path) or _make(path)
    except OSError as error:
        raise UsageError(
            f"--metrics-port needs a token, and {path} is none:"
            f" {error.strerror}; or set {contract.METRICS_TOKEN}"
        ) from error
    return Token(text, path)


def _path(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CONFIG_HOME", "")
    # The XDG specification says that relative paths are ignored.
    base = Path(home) if home.startswith("/") else Path.home() / ".config"
    return base / "keras_ring" / "metrics.token"


def _read(path: Path) -> str:
    """Returns the token of a file, or `""` if there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return ""
    with open(fd, encoding="ascii", errors="replace") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{path}: expected a file with a token")
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise UsageError(
                f"{path} can be read by others (mode"
                f" {found.st_mode & 0o777:o}), so it is no secret; remove it,"
                " and a new one will be made"
            )
        text = file.read().strip()
    if _TOKEN.fullmatch(text) is None:
        raise UsageError(f"{path} holds no token: expected {_EXPECTED}")
    return text


def _make(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(part, flags, 0o600), "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
    try:
        # If several launchers start at once, one makes the file and all use it.
        os.link(part, path)
    except FileExistsError:
        pass
    finally:
        part.unlink()
    return _read(path)
