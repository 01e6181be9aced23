"""Finds the jobs of this user, and reads what their ranks show."""

import contextlib
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from keras_ring.errors import ConfigurationError
from keras_ring.live import directory as places
from keras_ring.live import launcher_socket, process
from keras_ring.live.pages import Page, read_page

_PAGE = re.compile(r"rank\.[0-9]+\.[0-9]+\.page")
# What a job has left that was killed is of use for a while.
_KEPT_NS = 24 * 3600 * 10**9
_MAX_NAMES = 8
# Counters that are times of the steady clock.
_MOMENTS = ("submitted_ns", "done_ns", "began_ns", "activity_ns")


class NoJobError(LookupError):
    """There is no such job."""


class SeveralJobsError(LookupError):
    """It is not clear which job is meant.

    Args:
        text: What to say.
        jobs: Those that it may be.
    """

    def __init__(self, text: str, jobs: Sequence["Job"]) -> None:
        super().__init__(text)
        self.jobs = jobs


@dataclass(frozen=True)
class Job:
    """A job of which something is to be seen on this host.

    Args:
        path: The directory of its pages.
        pages: Those that were read last, by rank.
        launcher: Process id of a launcher on this host that serves the pages
            of others; None if there is none.
    """

    path: Path
    pages: tuple[Page, ...] = ()
    launcher: int | None = None

    @property
    def id(self) -> str:
        """Its name."""
        return self.path.name

    @property
    def runs(self) -> bool:
        """Whether any process of it lives."""
        return self.launcher is not None or any(p.alive for p in self.pages)

    def local(self) -> "Job":
        """Returns the job with what this host shows of it now."""
        pages: dict[int, Page] = {}
        launcher = None
        for path in _entries(self.path):
            if _PAGE.fullmatch(path.name):
                page = read_page(path)
                if page is not None:
                    before = pages.setdefault(page.rank, page)
                    pages[page.rank] = max(before, page, key=_newness)
            elif pid := launcher_socket.launcher_of(path):
                launcher = pid if process.look(pid) else launcher
        in_order = tuple(pages[rank] for rank in sorted(pages))
        return Job(self.path, in_order, launcher)

    def read(self) -> "Job":
        """Returns the job with what all of its hosts show of it now.

        Those of other hosts come by its launcher, if that is on this host.
        """
        found = self.local()
        if found.launcher is None:
            return found
        name = launcher_socket.socket_name(found.launcher)
        told = launcher_socket.ask(self.path / name)
        of_rank = {page.rank: page for page in (*told, *found.pages)}
        pages = tuple(of_rank[rank] for rank in sorted(of_rank))
        return Job(self.path, pages, found.launcher)


def _newness(page: Page) -> tuple[bool, int]:
    """Returns what is greater the sooner a page is the one of its rank.

    Jobs that have one key have one directory, and so do the generations of a
    job: who lives comes before the dead, and whoever began later.
    """
    return page.alive, page.started_unix_ns


def _entries(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        # The job has ended, or it is somebody else's.
        return []


def local_pages(directory: Path | None, job: str) -> tuple[Page, ...]:
    """Returns what the ranks of a job on this host show now.

    Args:
        directory: Where the pages of all jobs are; None for nowhere.
        job: Its name.
    """
    try:
        if directory is None or not places.is_private(directory):
            return ()
    except ConfigurationError:
        return ()
    return Job(directory / job).local().pages


def find_jobs(directory: Path | None) -> list[Job]:
    """Returns all jobs that show something on this host, the oldest first.

    Args:
        directory: Where their pages are.

    Raises:
        ConfigurationError: If the directory cannot be trusted.
    """
    if directory is None or not places.is_private(directory):
        return []
    found = [
        Job(path).local()
        for path in _entries(directory)
        if places.is_job_id(path.name)
    ]
    jobs = [job for job in found if job.pages or job.launcher is not None]
    return sorted(
        jobs,
        key=lambda job: min((p.started_unix_ns for p in job.pages), default=0),
    )


def pick(jobs: Sequence[Job], name: str | None) -> Job:
    """Returns the job that a user means.

    Args:
        jobs: All that there are.
        name: The beginning of its name, or the process id of one of its ranks
            or of what has started these; None for the one that runs.

    Raises:
        NoJobError: If there is none.
        SeveralJobsError: If it may be several.
    """
    if name is None:
        found = [job for job in jobs if job.runs]
        if not found:
            left = _names(jobs)
            raise NoJobError(
                "no job of yours runs on this host"
                + (
                    f"; to see how one has ended, name it: {left}"
                    if left
                    else ""
                )
            )
    else:
        found = [job for job in jobs if job.id.startswith(name)]
        found = found or _by_process(jobs, name)
        if not found:
            known = _names(jobs) or "none"
            raise NoJobError(
                f"no job {name!r} on this host: expected the beginning of a"
                " job's name, or the process id of a rank or of keras-ring"
                f" run; there are: {known}"
            )
    if len(found) > 1:
        raise SeveralJobsError(
            f"{len(found)} jobs, name one of them: {_names(found)}",
            found,
        )
    return found[0]


def _names(jobs: Sequence[Job]) -> str:
    """Returns the names of jobs, the newest first, if there are some."""
    names = [job.id for job in reversed(jobs)]
    more = len(names) - _MAX_NAMES
    text = ", ".join(names[:_MAX_NAMES])
    return f"{text} and {more} more" if more > 0 else text


def _by_process(jobs: Sequence[Job], text: str) -> list[Job]:
    if not (text.isascii() and text.isdigit()):
        return []
    pid = int(text)
    return [
        job
        for job in jobs
        if pid == job.launcher
        or any(
            page.pid == pid or (page.alive and pid in _starters(page.pid))
            for page in job.pages
        )
    ]


def _starters(pid: int) -> list[int]:
    # Whoever started the shell has started much else.
    return [each for each in process.ancestors(pid) if each != 1]


def tidy(directory: Path | None) -> None:
    """Removes what dead jobs have left in a directory more than a day ago."""
    with contextlib.suppress(ConfigurationError):
        clean(find_jobs(directory))


def clean(jobs: Sequence[Job]) -> list[Job]:
    """Removes what dead jobs have left more than a day ago.

    Returns:
        The jobs that stay.
    """
    now = time.time_ns()
    kept = []
    for job in jobs:
        if job.runs or now - _last_sign(job) < _KEPT_NS:
            kept.append(job)
            continue
        with contextlib.suppress(OSError):
            for path in _entries(job.path):
                # Its launcher is dead, or the job would run.
                if _PAGE.fullmatch(path.name) or launcher_socket.launcher_of(
                    path
                ):
                    path.unlink()
            job.path.rmdir()
    return kept


def _last_sign(job: Job) -> int:
    """Returns when a job was last known to live, in ns since the epoch.

    What is written into a page by memory need not change the time of its file.
    """
    signs = [0]
    with contextlib.suppress(OSError):
        signs = [os.lstat(job.path).st_mtime_ns]
    for page in job.pages:
        moments = [page.counters.get(name, 0) for name in _MOMENTS]
        times = [page.started_ns, *filter(None, moments)]
        signs.append(page.unix_ns(max(times)))
    return max(signs)
