"""Slurm: the tasks of a step share a file in the home of their user."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from keras_ring import errors
from keras_ring.core.engines import invitations
from keras_ring.core.engines.invitations import Invitation, Meeting
from keras_ring.core.engines.process_identity import (
    Engine,
    ProcessIdentity,
    number,
)
from keras_ring.protocol import contract

# A step is the processes of one srun.
_STEP = "SLURM_STEP_ID"
# As in csrc/base/options.cc.
_DEFAULT_PATIENCE, _RANKS_PER_SECOND = 60.0, 32
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5


@dataclass(frozen=True)
class SlurmEngine(Engine):
    """The tasks that srun has started.

    https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES
    """

    name: str = "srun (Slurm)"

    def identify(
        self, environment: Mapping[str, str]
    ) -> ProcessIdentity | None:
        """Returns the identity in the step, or in an allocation without one."""
        in_step = _STEP in environment
        size = "SLURM_STEP_NUM_TASKS" if in_step else "SLURM_NTASKS"
        names = [size, "SLURM_PROCID"] if in_step else [size]
        num_tasks = number(environment, size)
        if num_tasks is None:
            return None
        return ProcessIdentity(
            engine=self.name if in_step else "an allocation of Slurm",
            size=num_tasks,
            # In a script of sbatch this is 0, but the script is no task.
            rank=number(environment, "SLURM_PROCID") if in_step else None,
            variables={name: environment.get(name, "") for name in names},
            advice=""
            if in_step
            else "srun has not started it: write `srun python ...`.",
        )

    @contextlib.contextmanager
    def meet(
        self, identity: ProcessIdentity, environment: Mapping[str, str]
    ) -> Iterator[Meeting]:
        """Brings the tasks of a step together.

        Rank 0 writes a file that only its user can read, and removes it when
        the ranks have started.

        Raises:
            StartError: If the file cannot be written, or does not appear.
        """
        if identity.size is None or identity.rank is None:
            raise ValueError(f"`identity` must be whole. Received: {identity}")
        path = _path(environment)
        with contextlib.ExitStack() as stack:
            listener = None
            if identity.rank == 0:
                invitation, listener = stack.enter_context(
                    invitations.invite(
                        environment,
                        one_host=environment.get("SLURM_STEP_NUM_NODES") == "1",
                    )
                )
                _write(path, invitation.encode())
                stack.callback(path.unlink, missing_ok=True)
            else:
                invitation = _await(path, _patience(identity.size, environment))
            yield Meeting(
                size=identity.size,
                rank=identity.rank,
                invitation=invitation,
                listener=listener,
            )


def _path(environment: Mapping[str, str]) -> Path:
    """Returns the file of this step, the same for all of its tasks."""
    parts = [
        environment.get("SLURM_CLUSTER_NAME", "cluster"),
        environment.get("SLURM_JOB_ID", ""),
        environment.get(_STEP, ""),
        environment.get("SLURM_RESTART_COUNT", "0"),
    ]
    home = Path(environment.get("HOME") or Path.home())
    return home / ".keras_ring" / "-".join(["slurm", *parts])


def _write(path: Path, text: str) -> None:
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _check_owner(path.parent)
        # A killed task of the same step may have left this file.
        part.unlink(missing_ok=True)
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(file, "w", encoding="ascii") as stream:
            stream.write(text)
        part.replace(path)
    except OSError as error:
        raise errors.StartError(
            f"Rank 0 cannot tell the other tasks of this Slurm step where it "
            f"is: {error}. It writes a file of the job into $HOME; if that is "
            f"impossible, set {contract.RENDEZVOUS} and "
            f"{contract.JOB_KEY_FILE}."
        ) from None


def _await(path: Path, patience: float) -> Invitation:
    """Waits for the invitation that rank 0 writes, and returns it."""
    give_up = time.monotonic() + patience
    pause = _FIRST_PAUSE
    while True:
        try:
            # A network file system looks again for a file that was not there
            # only when the folder has been read.
            if path.name in os.listdir(path.parent):
                _check_owner(path)
                return Invitation.decode(path.read_text("ascii"))
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            raise errors.StartError(
                f"What rank 0 has written for the tasks of this Slurm step "
                f"cannot be read: {error}"
            ) from None
        if time.monotonic() > give_up:
            raise errors.StartError(
                f"Rank 0 (task 0 of this Slurm step) has not written {path} "
                f"within {patience:g} s ({contract.START_TIMEOUT}). It has not "
                "started, or has failed (see its output), or $HOME is not the "
                f"same on all nodes; then set {contract.RENDEZVOUS} and "
                f"{contract.JOB_KEY_FILE}."
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _patience(size: int, environment: Mapping[str, str]) -> float:
    """Returns the time limit of the start in seconds, as the core has it."""
    try:
        return float(environment[contract.START_TIMEOUT])
    except (KeyError, ValueError):
        return _DEFAULT_PATIENCE + size // _RANKS_PER_SECOND


def _check_owner(path: Path) -> None:
    """Raises an error if another user could have written the file, or can."""
    found = path.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(
            f"{path} belongs to user {found.st_uid}, mode "
            f"{stat.S_IMODE(found.st_mode):o}; it must be this user's alone"
        )
