"""Kinds of connections that unauthenticated peers make, to be turned away."""

import contextlib
import hashlib
import hmac
import os
import pickle
import secrets
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from pathlib import Path

PREFIX = b"KRNG\x07\0\0\0"
PROOF_BYTES = 72  # of the server's first message
VERDICT_BYTES = 33
_STORE, _CONTROL, _DATA = range(3)
_TIMEOUT = 20.0
_MAX_OPEN = 200


class Accepted(AssertionError):
    """A rank has let in whom it must not."""


def _opening() -> bytes:
    return PREFIX + secrets.token_bytes(32)


def _hello(
    kind: int, rank: int, target: int = 0, process_set: int = 0
) -> bytes:
    return struct.pack("<BxxxIQI", kind, rank, target, process_set)


def _claim(key: bytes, opening: bytes, answer: bytes, hello: bytes) -> bytes:
    message = b"keras_ring handshake: client" + opening + answer + hello
    return hello + hmac.new(key, message, hashlib.sha256).digest()


def _client_hello() -> bytes:
    """The first message of a TLS client, as the ssl module makes it."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(
        incoming, outgoing, server_hostname="localhost"
    )
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


class _Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (self._path,)


class UnauthenticatedPeers:
    """Makes bad connections to ranks, one kind after the other.

    Args:
        key: The job's key in hexadecimal digits, for those that know it and
            are still wrong.
        bomb: A path that the pickle among the kinds would create.
    """

    def __init__(self, key: str, bomb: Path) -> None:
        self._key = bytes.fromhex(key)
        self._open: deque[socket.socket] = deque()
        self._drips: deque[tuple[socket.socket, bytes]] = deque()
        self._tls = _client_hello()
        self._pickle = pickle.dumps(_Bomb(str(bomb)))
        # Per port, one that was let in far enough to be worth recording.
        self._recorded: dict[int, tuple[bytes, bytes]] = {}
        self.counts: dict[str, int] = {}
        self.kinds: dict[str, Callable[[int], None]] = {
            "silence": lambda port: self._stay(port, b""),
            "half an opening": lambda port: self._stay(port, _opening()[:20]),
            "an opening, no more": lambda port: self._stay(port, _opening()),
            "slow drip": self._drip,
            "garbage": lambda port: self._say(port, os.urandom(4096)),
            "zeros": lambda port: self._say(port, bytes(1000)),
            "oversized length": lambda port: self._say(port, b"\xff" * 64),
            "HTTP": lambda port: self._say(
                port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
            ),
            "TLS": lambda port: self._say(port, self._tls),
            "pickle": lambda port: self._say(port, self._pickle),
            "store request": lambda port: self._say(
                port, b"\x0f\0\x01\x08join/1/1\x01x"
            ),
            "wrong version": lambda port: self._say(
                port, b"KRNG\x02" + bytes(87)
            ),
            "opening and garbage": lambda port: self._say(
                port, _opening() + os.urandom(52)
            ),
            "wrong key": self._wrong_key,
            "replay": self._replay,
            "reflection": self._reflect,
            "proof of another connection": self._reflect_crosswise,
            "right rank twice": lambda port: self._refused(
                port, _hello(_CONTROL, 1)
            ),
            "rank out of range": lambda port: self._refused(
                port, _hello(_DATA, 4711)
            ),
            "wrong process set": lambda port: self._refused(
                port, _hello(_DATA, 1, process_set=99)
            ),
            "wrong target": lambda port: self._refused(
                port, _hello(_DATA, 1, target=secrets.randbits(64))
            ),
            "late to the store": lambda port: self._refused(
                port, _hello(_STORE, 1)
            ),
            "reset": self._reset,
            "port scan": self._scan,
        }

    def knock(self, kind: str, port: int) -> None:
        """Makes one connection.

        Raises:
            Accepted: If the rank took it for one of its own.
        """
        self._drip_on()
        self.kinds[kind](port)
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def close(self) -> None:
        """Closes what is still open."""
        for connection in (*self._open, *(drip[0] for drip in self._drips)):
            connection.close()
        self._open.clear()
        self._drips.clear()

    @staticmethod
    def _connect(port: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT)

    def _stay(self, port: int, said: bytes) -> None:
        connection = self._connect(port)
        connection.sendall(said)
        self._open.append(connection)
        if len(self._open) > _MAX_OPEN:
            self._open.popleft().close()

    def _drip(self, port: int) -> None:
        self._drips.append((self._connect(port), _opening() * 2))
        if len(self._drips) > _MAX_OPEN:
            self._drips.popleft()[0].close()

    def _drip_on(self) -> None:
        if self._drips:
            connection, rest = self._drips.popleft()
            # Dropped meanwhile, as it should be.
            with contextlib.suppress(OSError):
                connection.send(rest[:1])
                self._drips.append((connection, rest[1:] or b"x"))
                return
            connection.close()

    def _say(self, port: int, said: bytes) -> None:
        with self._connect(port) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(said)
            self._expect_end(connection, PROOF_BYTES)

    @staticmethod
    def _expect_end(connection: socket.socket, allowed: int) -> None:
        heard = 0
        with contextlib.suppress(ConnectionError):
            while data := connection.recv(4096):
                heard += len(data)
        if heard > allowed:
            raise Accepted(
                f"a rank said {heard} bytes to an unauthenticated peer"
            )

    @staticmethod
    def _hear(connection: socket.socket, count: int) -> bytes:
        heard = b""
        while len(heard) < count:
            data = connection.recv(count - len(heard))
            if not data:
                break
            heard += data
        return heard

    def _exchange(
        self, port: int, opening: bytes, claim: Callable[[bytes], bytes]
    ) -> tuple[bytes, bytes]:
        """Returns what was claimed, and the verdict if there was one."""
        with self._connect(port) as connection:
            connection.sendall(opening)
            answer = self._hear(connection, PROOF_BYTES)
            claimed = claim(answer)
            verdict = b""
            with contextlib.suppress(ConnectionError):
                connection.sendall(claimed)
                verdict = self._hear(connection, VERDICT_BYTES)
            return claimed, verdict

    def _expect_none(
        self, port: int, opening: bytes, claim: Callable[[bytes], bytes]
    ) -> None:
        _, verdict = self._exchange(port, opening, claim)
        if verdict:
            raise Accepted(
                f"a rank believed an unauthenticated peer: {verdict[0]}"
            )

    def _refused(self, port: int, hello: bytes) -> tuple[bytes, bytes]:
        """With the key; returns what was said."""
        opening = _opening()
        claimed, verdict = self._exchange(
            port,
            opening,
            lambda answer: _claim(self._key, opening, answer, hello),
        )
        if len(verdict) != VERDICT_BYTES or verdict[0] == 0:
            raise Accepted(f"to {hello!r} a rank said {verdict!r}")
        return opening, claimed

    def _wrong_key(self, port: int) -> None:
        opening = _opening()
        self._expect_none(
            port,
            opening,
            lambda answer: _claim(
                secrets.token_bytes(32), opening, answer, _hello(_CONTROL, 1)
            ),
        )

    def _replay(self, port: int) -> None:
        if port not in self._recorded:
            # Believed, and refused for its target alone.
            hello = _hello(_CONTROL, 1)
            self._recorded[port] = self._refused(port, hello)
        for opening, claim in self._recorded.values():
            self._expect_none(port, opening, lambda _, claim=claim: claim)

    def _reflect(self, port: int) -> None:
        self._expect_none(
            port, _opening(), lambda answer: _hello(_DATA, 1) + answer[40:]
        )

    def _reflect_crosswise(self, port: int) -> None:
        with self._connect(port) as other:
            opening = _opening()
            other.sendall(opening)
            answer = self._hear(other, PROOF_BYTES)
            self._expect_none(
                port, opening, lambda _: _hello(_DATA, 1) + answer[40:]
            )

    def _reset(self, port: int) -> None:
        connection = self._connect(port)
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        connection.close()

    def _scan(self, port: int) -> None:
        self._connect(port).close()
