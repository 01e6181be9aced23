"""An agent's part in the tests of connections between hosts."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from keras_ring.errors import ConfigurationError
from keras_ring.launch import job, link_probe
from keras_ring.launch.agent_answers import AnswerLater
from keras_ring.launch.frames import Frame, encode
from keras_ring.protocol import interfaces


class HostNetwork:
    """The ports that this host opens, and its connections to other hosts.

    Args:
        hello: Dictionary, the first message of the launcher: `interface` and
            `ports` are those that the job may use, and `reach` is the number of
            seconds for one address to answer.
        say: Function that sends a message to the launcher.
        answer_later: Function that calls another one in a thread and sends the
            message that it returns.
    """

    def __init__(
        self,
        hello: Mapping[str, Any],
        say: Callable[..., None],
        answer_later: AnswerLater,
    ) -> None:
        self._hello = hello
        self._say = say
        self._answer_later = answer_later
        self.listener: socket.socket | None = None
        """The listening socket of rank 0, if rank 0 is on this host."""
        self._link_server: link_probe.LinkServer | None = None
        self.verbs: dict[str, Callable[[Frame], None]] = {
            "listen": self._listen,
            "reach": self._reach,
            "count": self._count,
            "serve": self._serve,
            "stop_serving": self._stop_serving,
            "measure": self._measure,
        }

    def _listen(self, frame: Frame) -> None:
        """Opens the socket of rank 0."""
        self.listener = self._open("listening", job.BACKLOG)

    def _open(self, answer: str, backlog: int) -> socket.socket | None:
        """Opens a socket at which other hosts reach this one, and reports it.

        It uses the interface and the ports that the job may use.

        Args:
            answer: String, the kind of the message with the port and the
                addresses, or with the reason why there are none.
            backlog: Integer, the number of connections that may wait.

        Returns:
            The socket, or `None` if it could not be opened.
        """
        try:
            chosen = interfaces.choose(
                self._hello["interface"], interfaces.own_addresses()
            )
            addresses = list(dict.fromkeys(each.address for each in chosen))
            ports = self._hello["ports"]
            listener = interfaces.listen(
                # If there are several, other hosts report which they reach.
                addresses[0] if len(addresses) == 1 else "",
                range(ports[0], ports[1] + 1) if ports else None,
                backlog,
            )
        except (OSError, ConfigurationError) as error:
            self._say(answer, problem=str(error))
            return None
        port = listener.getsockname()[1]
        self._say(answer, problem="", port=port, addresses=addresses)
        return listener

    def _reach(self, frame: Frame) -> None:
        """Reports which of these addresses can be reached from here."""

        def connect(address: str) -> bytes:
            reached = interfaces.answers(
                address, frame.fields["port"], self._hello["reach"]
            )
            return encode("reached", address=address, reached=reached)

        for address in frame.fields["addresses"]:
            self._answer_later(connect, address)

    def _count(self, frame: Frame) -> None:
        """Reports whether the queue of rank 0's socket is full."""
        full = self.listener is not None and interfaces.is_full(self.listener)
        self._say("counted", full=full)

    def _serve(self, frame: Frame) -> None:
        """Answers hosts that measure the connection to this one."""
        listener = self._open("serving", link_probe.BACKLOG)
        if listener is not None:
            self._link_server = link_probe.LinkServer(
                listener, frame.fields["token"], self._hello["reach"]
            )

    def _stop_serving(self, frame: Frame) -> None:
        """Closes the port that `_serve` opened."""
        if self._link_server is not None:
            self._link_server.close()
            self._link_server = None

    def _measure(self, frame: Frame) -> None:
        """Measures the link to another host, at its first good address."""

        def measure(told: Mapping[str, Any]) -> bytes:
            failures = []
            for address in told["addresses"]:
                try:
                    speed = link_probe.measure(
                        address,
                        told["port"],
                        told["token"],
                        self._hello["reach"],
                    )
                except (OSError, ValueError) as error:
                    failures.append(f"{address}: {error}")
                    continue
                return encode(
                    "measured",
                    host=told["host"],
                    address=address,
                    **asdict(speed),
                )
            return encode(
                "measured", host=told["host"], problem="; ".join(failures)
            )

        self._answer_later(measure, frame.fields)
