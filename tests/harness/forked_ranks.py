"""Ranks forked from a process that has imported everything.

Importing TensorFlow takes seconds of a core; a fork takes milliseconds. It is
sound as long as the parent has one thread, which is checked: importing starts
none, and whatever is set up at first use is set up by each rank for itself.
Tensors are not shared with other ranks (`KERAS_RING_ZERO_COPY=0`), since what
serves that is made when the package is imported.
"""

import faulthandler
import json
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from keras_ring.protocol.contract import RankContract
from tests.harness import forked


class ForkedRank:
    """One rank, as its parent sees it."""

    def __init__(self, rank: int, pid: int, notices: int, orders: int) -> None:
        self.rank = rank
        self.pid = pid
        self.notices = notices
        self.orders = orders
        self.watch = os.pidfd_open(pid)
        self.told: list[str] = []
        self.exit_code: int | None = None
        self.ended_at = 0.0

    def order(self, word: str) -> None:
        """Tells the rank something."""
        os.write(self.orders, f"{word}\n".encode())

    def send(self, signum: int) -> None:
        """Sends it a signal, if it still runs."""
        if self.exit_code is None:
            os.kill(self.pid, signum)

    def reap(self) -> None:
        """Notes how it ended, if it has."""
        if self.exit_code is not None:
            return
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.exit_code = os.waitstatus_to_exitcode(status)
            self.ended_at = time.monotonic()

    def close(self) -> None:
        """Closes what belongs to it."""
        for fd in (self.watch, self.notices, self.orders):
            os.close(fd)


class ForkedRanks:
    """The ranks of one job.

    Args:
        size: Number of ranks.
        directory: Where they leave what they print and how they end.
        environment: Added to that of this process.
        hosts: Identity of each rank's host; None for the real one.
        function: Called in each with its rank, a descriptor to read orders
            from, and a function that tells the driver something.
    """

    def __init__(
        self,
        size: int,
        directory: Path,
        environment: dict[str, str],
        hosts: Sequence[str] | None,
        function: Callable[[int, int, Callable[[str], None]], None],
    ) -> None:
        self.directory = directory
        self.ranks: list[ForkedRank] = []
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        key = secrets.token_hex(32)
        for rank in range(size):
            contract = RankContract(
                rank=rank,
                size=size,
                rendezvous=address,
                rendezvous_fd=listener.fileno() if rank == 0 else None,
                job_key=key,
                error_file=str(directory / f"rank.{rank}.error.json"),
                host_id=hosts[rank] if hosts else None,
            )
            self._fork(contract, environment, function)
        listener.close()

    def _fork(self, contract, environment, function) -> None:
        notices, tell = os.pipe()
        read_orders, orders = os.pipe()

        def body() -> int:
            # Says where, should a rank crash that nobody has killed.
            faulthandler.enable(file=2, all_threads=False)
            return _run(contract.rank, read_orders, tell, function)

        pid = forked.start(
            body,
            contract.environment({**os.environ, **environment}),
            self.directory,
            suffix=f".{contract.rank}",
            keep={tell, read_orders, contract.rendezvous_fd} - {None},
        )
        os.close(tell)
        os.close(read_orders)
        self.ranks.append(ForkedRank(contract.rank, pid, notices, orders))

    def wait(self, condition: Callable[[], bool], until: float) -> bool:
        """Takes in what ranks tell and how they end until `condition` holds.

        Args:
            condition: Looked at whenever something has changed.
            until: When to give up (`time.monotonic`).
        """
        while not condition():
            left = until - time.monotonic()
            alive = [rank for rank in self.ranks if rank.exit_code is None]
            if left <= 0 or not alive:
                return condition()
            poll = select.poll()
            of_fd = {}
            for rank in alive:
                of_fd[rank.watch] = of_fd[rank.notices] = rank
                poll.register(rank.watch, select.POLLIN)
                poll.register(rank.notices, select.POLLIN)
            for fd, _ in poll.poll(left * 1000):
                rank = of_fd[fd]
                if fd == rank.notices:
                    rank.told += os.read(fd, 65536).decode().split("\n")
                if fd == rank.watch or rank.told[-1:] == [""]:
                    rank.reap()
        return True

    def end(self) -> None:
        """Kills what is left, and frees everything."""
        for rank in self.ranks:
            rank.send(signal.SIGKILL)
        self.wait(lambda: False, time.monotonic() + 10.0)
        for rank in self.ranks:
            rank.close()

    def outcome(self, rank: int) -> dict[str, object]:
        """Returns how a rank's program ended: `type`, `message`, `at`."""
        path = self.directory / f"outcome.{rank}.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def stderr(self, rank: int) -> str:
        """Returns what a rank printed to standard error."""
        return forked.stderr(self.directory, f".{rank}")


def _run(rank, orders, tell, function) -> int:
    """Runs the function as the interpreter does a program."""
    directory = Path(os.environ["KERAS_RING_ERROR_FILE"]).parent

    def ended(error: BaseException | None) -> None:
        outcome = {
            "type": type(error).__name__ if error else "",
            "message": str(error or ""),
            "at": time.monotonic(),
        }
        part = directory / f"outcome.{rank}.part"
        part.write_text(json.dumps(outcome))
        part.replace(directory / f"outcome.{rank}.json")

    def say(text: str) -> None:
        os.write(tell, f"{text}\n".encode())

    return forked.run(lambda: function(rank, orders, say), ended)
