"""Finds the jobs of this user, and reads the pages of their ranks."""

import contextlib
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from keras_ring.errors import ConfigurationError
from keras_ring.observe import launcher_socket, process
from keras_ring.observe.directory import is_job_id, is_private
from keras_ring.observe.pages import Page, read_page

_PAGE = re.compile(r"rank\.[0-9]+\.[0-9]+\.page")
# The pages of a killed job are kept for a day, for diagnosis.
_KEPT_NS = 24 * 3600 * 10**9
_MAX_NAMES = 8
# Counters whose values are times of the steady clock.
_MOMENTS = ("submitted_ns", "done_ns", "began_ns", "activity_ns")


class NoJobError(LookupError):
    """There is no such job."""


class SeveralJobsError(LookupError):
    """It is not clear which job is meant.

    Args:
        text: String, the message.
        jobs: The jobs that it may be.
    """

    def __init__(self, text: str, jobs: Sequence["Job"]) -> None:
        super().__init__(text)
        self.jobs = jobs


@dataclass(frozen=True)
class Job:
    """A job that has pages or its launcher on this host.

    Args:
        path: The directory of its pages.
        pages: The pages that were read last, by rank.
        launcher: Process id of a launcher on this host that serves the pages
            of other hosts, or `None` if there is none.
    """

    path: Path
    pages: tuple[Page, ...] = ()
    launcher: int | None = None

    @property
    def id(self) -> str:
        """Name of the job."""
        return self.path.name

    @property
    def runs(self) -> bool:
        """Returns whether a process of the job lives."""
        return self.launcher is not None or any(p.alive for p in self.pages)

    def local(self) -> "Job":
        """Returns the job with the current pages of this host."""
        pages: list[Page] = []
        launcher = None
        for path in _entries(self.path):
            if _PAGE.fullmatch(path.name):
                page = read_page(path)
                if page is not None:
                    pages.append(page)
            elif pid := launcher_socket.launcher_of(path):
                launcher = pid if process.look(pid) else launcher
        return Job(self.path, current(pages), launcher)

    def read(self) -> "Job":
        """Returns the job with the current pages of all of its hosts.

        Its launcher sends those of other hosts, if it runs on this host.
        """
        found = self.local()
        if found.launcher is None:
            return found
        name = launcher_socket.socket_name(found.launcher)
        told = launcher_socket.ask(self.path / name)
        return Job(self.path, current((*told, *found.pages)), found.launcher)


def current(pages: Iterable[Page]) -> tuple[Page, ...]:
    """Returns the pages of the ranks that a job has now, by rank.

    Jobs with the same key share a directory, and so do the generations of an
    elastic job: a process may have pages of several ranks, and a job had ranks
    that nobody is any more.

    Args:
        pages: The pages of all hosts, or of one. Of a rank, the newest counts;
            of two that are alike, the later one.
    """
    pages = list(pages)
    last: dict[tuple[str, int], int] = {}
    for page in pages:
        key = page.host, page.pid
        last[key] = max(page.started_unix_ns, last.get(key, 0))
    of_rank: dict[int, Page] = {}
    for page in pages:
        # A generation that has lost a rank leaves a page with that error.
        is_over = page.started_unix_ns < last[page.host, page.pid]
        if is_over and page.alive and page.error:
            continue
        before = of_rank.setdefault(page.rank, page)
        if _newness(page) >= _newness(before):
            of_rank[page.rank] = page
    living = [page for page in of_rank.values() if page.alive]
    newest = max(living, key=_newness, default=None)
    return tuple(
        of_rank[rank]
        for rank in sorted(of_rank)
        if newest is None or rank < newest.size
    )


def _newness(page: Page) -> tuple[bool, int]:
    """Returns a sort key: the greatest page is the current one of its rank.

    A page of a live process counts before one of a dead process, and a later
    one before an earlier one.
    """
    return page.alive, page.started_unix_ns


def _entries(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        # The job has ended, or it belongs to another user.
        return []


def local_pages(directory: Path | None, job: str) -> tuple[Page, ...]:
    """Returns the current pages of the ranks of a job on this host.

    Args:
        directory: The directory of the pages of all jobs, or `None`.
        job: Name of the job.
    """
    try:
        if directory is None or not is_private(directory):
            return ()
    except ConfigurationError:
        return ()
    return Job(directory / job).local().pages


def find_jobs(directory: Path | None) -> list[Job]:
    """Returns the jobs with pages or a launcher here, the oldest first.

    Args:
        directory: The directory of the pages of all jobs, or `None`.

    Raises:
        ConfigurationError: If the directory cannot be trusted.
    """
    if directory is None or not is_private(directory):
        return []
    found = [
        Job(path).local()
        for path in _entries(directory)
        if is_job_id(path.name)
    ]
    jobs = [job for job in found if job.pages or job.launcher is not None]
    return sorted(
        jobs,
        key=lambda job: min((p.started_unix_ns for p in job.pages), default=0),
    )


def pick(jobs: Sequence[Job], name: str | None) -> Job:
    """Returns the job that a user has chosen.

    Args:
        jobs: All jobs.
        name: The beginning of its name, or the process id of one of its ranks
            or of a process that has started these. `None` chooses the only
            running job.

    Raises:
        NoJobError: If there is none.
        SeveralJobsError: If several jobs match.
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
    """Returns the names of jobs as text, the newest first."""
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
    # Process 1 has started much else, so it identifies no job.
    return [each for each in process.ancestors(pid) if each != 1]


def tidy(directory: Path | None) -> None:
    """Removes the files of jobs in a directory that died over a day ago."""
    with contextlib.suppress(ConfigurationError):
        clean(find_jobs(directory))


def clean(jobs: Sequence[Job]) -> list[Job]:
    """Removes the files of jobs that died more than a day ago.

    Returns:
        The other jobs.
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

    A write to mapped memory need not change the time of the file.
    """
    signs = [0]
    with contextlib.suppress(OSError):
        signs = [os.lstat(job.path).st_mtime_ns]
    for page in job.pages:
        moments = [page.counters.get(name, 0) for name in _MOMENTS]
        times = [page.started_ns, *filter(None, moments)]
        signs.append(page.unix_ns(max(times)))
    return max(signs)
