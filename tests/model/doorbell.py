"""How a control thread sleeps and is woken: csrc/comm/host/doorbell.h.

With csrc/comm/transport/message_channel.cc (Poll),
csrc/comm/host/shm_stream.{h,cc} and csrc/comm/transport/local_link.cc above it.
A wait has no limit here.
"""

import dataclasses

from tests.model.machine import END, Machine

AWAKE, ASLEEP, NOTIFIED = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class Faults:
    """What broken code would do."""

    # Notify: left out if the thread is notified already.
    rings_only_once: bool = False
    # LocalLink::Send: rings, then writes.
    rings_before_writing: bool = False
    # Poll: looks for work, then WakeUp.
    wakes_up_after_looking: bool = False
    # FallAsleep: an exchange, whatever the state is.
    falls_asleep_when_notified: bool = False
    # ShmStream::Write: does not look for room again after `writer_waits`.
    waits_without_a_second_look: bool = False
    # ShmStream::Write: `writer_waits` is only released.
    waits_late: bool = False
    # LocalLink::Read: TakeWriterWaits, then the new `read`.
    asks_before_making_room: bool = False
    # ShmStream::Write: `written`, then the bytes.
    publishes_before_writing: bool = False
    # ShmStream::Read: the new `read`, then the bytes.
    makes_room_before_reading: bool = False


def _ring(program, label, sleeper, then, faults):
    """Doorbell::Notify."""

    def ring(cpu):
        if cpu.exchange(f"bell of {sleeper}", NOTIFIED) == ASLEEP:
            return f"{label}: signal"
        return then

    def ring_once(cpu):
        notified = cpu.load(f"bell of {sleeper}") == NOTIFIED
        return then if notified else f"{label}: exchange"

    def signal(cpu):
        cpu.fetch_add(f"eventfd of {sleeper}", 1)
        return then

    program[label] = ring_once if faults.rings_only_once else ring
    program[f"{label}: exchange"] = ring
    program[f"{label}: signal"] = signal


def _poll(program, sleeper, then, faults):
    """MessageChannel::Poll, up to the look for work at `then`."""
    bell, eventfd = f"bell of {sleeper}", f"eventfd of {sleeper}"
    late = faults.wakes_up_after_looking
    woken = then if late else "wake up"
    awake = "poll" if late else then

    # The spinner gives up at any time.
    def poll(cpu):
        return "fall asleep", "rung?"

    # bell_->IsNotified()
    def rung(cpu):
        return woken if cpu.load(bell) != AWAKE else "fall asleep"

    # Doorbell::FallAsleep
    def fall_asleep(cpu):
        if faults.falls_asleep_when_notified:
            cpu.exchange(bell, ASLEEP)
            cpu.registers["sleeps"] = 1
        else:
            cpu.registers["sleeps"] = int(
                cpu.compare_exchange(bell, AWAKE, ASLEEP)
            )
        return "epoll_wait"

    # With a timeout of zero if the bell has rung.
    def epoll_wait(cpu):
        signalled = cpu.load(eventfd) > 0
        if cpu.registers["sleeps"] and not signalled:
            return None
        cpu.registers["sleeps"] = int(signalled)
        return woken

    # Doorbell::WakeUp
    def wake_up(cpu):
        cpu.exchange(bell, AWAKE)
        return "clear the signal" if cpu.registers["sleeps"] else awake

    def clear(cpu):
        cpu.registers["sleeps"] = 0
        cpu.store(eventfd, 0)
        return awake

    program["poll"] = poll
    program["rung?"] = rung
    program["fall asleep"] = fall_asleep
    program["epoll_wait"] = epoll_wait
    program["wake up"] = wake_up
    program["clear the signal"] = clear


def ringers(count, works=1, faults=None):
    """A loop, and `count` threads that give it `works` things to do each."""
    faults = faults or Faults()
    words = {"bell of loop": AWAKE, "eventfd of loop": 0}
    words.update({f"work {i}": 0 for i in range(count)})
    loop = {}
    _poll(loop, "loop", "look 0", faults)

    def look(i):
        def look(cpu):
            cpu.registers["done"] += (
                cpu.load(f"work {i}") - cpu.registers[f"seen {i}"]
            )
            cpu.registers[f"seen {i}"] = cpu.load(f"work {i}")
            if i + 1 < count:
                return f"look {i + 1}"
            if cpu.registers["done"] == count * works:
                return END
            return "wake up" if faults.wakes_up_after_looking else "poll"

        return look

    for i in range(count):
        loop[f"look {i}"] = look(i)
    programs = {"loop": loop}
    for i in range(count):
        programs[f"ringer {i}"] = _ringer(i, works, faults)
    return Machine(
        words=words,
        programs=programs,
        registers=("sleeps", "done", *(f"seen {i}" for i in range(count))),
    )


def _ringer(i, works, faults):
    program = {}

    def write(cpu):
        cpu.registers["done"] += 1
        cpu.store_later(f"work {i}", cpu.registers["done"])
        return "next" if faults.rings_before_writing else "ring"

    def following(cpu):
        return END if cpu.registers["done"] == works else begin

    begin = "ring" if faults.rings_before_writing else "write"
    program["begin"] = lambda cpu: begin
    program["write"] = write
    after = "write" if faults.rings_before_writing else "next"
    _ring(program, "ring", "loop", after, faults)
    program["next"] = following
    return program


def stream(bytes_sent, capacity=2, others=1, faults=None):
    """A frame of many bytes through a ring of few (ShmStream, LocalLink).

    Others ring the bells, too: `others` times each.
    """
    faults = faults or Faults()
    words = {"written": 0, "read": 0, "writer_waits": 0}
    for side in ("writer", "reader"):
        words[f"bell of {side}"] = AWAKE
        words[f"eventfd of {side}"] = 0
    words.update({f"byte {i}": 0 for i in range(capacity)})
    return Machine(
        words=words,
        programs={
            "writer": _writer(bytes_sent, capacity, faults),
            "reader": _reader(bytes_sent, capacity, faults),
            "other of the reader": _other("reader", others),
            "other of the writer": _other("writer", others),
        },
        registers=("sleeps", "at", "to"),
    )


def _other(sleeper, times):
    """Somebody with business of its own."""
    program = {}

    def begin(cpu):
        cpu.registers["at"] += 1
        return END if cpu.registers["at"] > times else "ring"

    program["begin"] = begin
    _ring(program, "ring", sleeper, "begin", Faults())
    return program


def _writer(total, capacity, faults):
    """ShmStream::Write. Registers: `at`: written; `to`: up to where it may."""
    program = {}

    # LocalLink::Send, and Flush after each Poll.
    def begin(cpu):
        return "room"

    def has_room_until(cpu):
        return min(cpu.load("read") + capacity, total)

    # if (room() < data.size())
    def room(cpu):
        cpu.registers["to"] = has_room_until(cpu)
        return "go on" if cpu.registers["to"] == total else "wants room"

    # writer_waits.store(1)
    def wants_room(cpu):
        store = cpu.store_later if faults.waits_late else cpu.store
        store("writer_waits", 1)
        if faults.waits_without_a_second_look:
            return "go on"
        return "room again"

    # std::min(room(), data.size())
    def room_again(cpu):
        cpu.registers["to"] = has_room_until(cpu)
        return "go on"

    def go_on(cpu):
        if cpu.registers["to"] == total:
            cpu.store_later("writer_waits", 0)
        if cpu.registers["to"] == cpu.registers["at"]:
            return "poll"
        return "publish" if faults.publishes_before_writing else "bytes"

    def write_byte(cpu):
        at = cpu.registers["at"]
        cpu.store_later(f"byte {at % capacity}", 1 + at)
        cpu.registers["at"] += 1
        if cpu.registers["at"] < cpu.registers["to"]:
            return "bytes"
        return "ring" if faults.publishes_before_writing else "publish"

    # written.store(end + size, release)
    def publish(cpu):
        cpu.store_later("written", cpu.registers["to"])
        return "bytes" if faults.publishes_before_writing else "ring"

    def written(cpu):
        return END if cpu.registers["at"] == total else "poll"

    program["begin"] = begin
    program["room"] = room
    program["wants room"] = wants_room
    program["room again"] = room_again
    program["go on"] = go_on
    program["bytes"] = write_byte
    program["publish"] = publish
    _ring(program, "ring", "reader", "written", faults)
    program["written"] = written
    _poll(program, "writer", "room", Faults())
    return program


def _reader(total, capacity, faults):
    """LocalLink::Read. Registers: `at`: read; `to`: up to where it may."""
    program = {}

    # !in_.empty()
    def look(cpu):
        cpu.registers["to"] = cpu.load("written")
        if cpu.registers["to"] == cpu.registers["at"]:
            return "poll"
        return "make room" if faults.makes_room_before_reading else "take"

    def take(cpu):
        at = cpu.registers["at"]
        found = cpu.load(f"byte {at % capacity}")
        cpu.check(found == 1 + at, f"byte {at} is {found}, not {1 + at}")
        cpu.registers["at"] += 1
        if cpu.registers["at"] < cpu.registers["to"]:
            return "take"
        if faults.makes_room_before_reading:
            return "waits?"
        return "waits?" if faults.asks_before_making_room else "make room"

    # read.store(begin + size)
    def make_room(cpu):
        cpu.store("read", cpu.registers["to"])
        if faults.makes_room_before_reading:
            return "take"
        return "next" if faults.asks_before_making_room else "waits?"

    # ShmStream::TakeWriterWaits
    def waits(cpu):
        if cpu.load("writer_waits"):
            return "take writer_waits"
        return after_asking

    def take_waits(cpu):
        return "ring" if cpu.exchange("writer_waits", 0) else after_asking

    def following(cpu):
        return END if cpu.registers["at"] == total else "poll"

    after_asking = "make room" if faults.asks_before_making_room else "next"
    _poll(program, "reader", "look", Faults())
    program["look"] = look
    program["take"] = take
    program["make room"] = make_room
    program["waits?"] = waits
    program["take writer_waits"] = take_waits
    _ring(program, "ring", "writer", after_asking, faults)
    program["next"] = following
    return program
