"""How ranks wait for each other, word by word.

That is csrc/collective/shm/chunk_barrier.cc.

Every load and store of a `ProgressPage` is a step of its own. Nothing ends a
sleep but a wake: the naps of the code, after which it looks again, would hide a
lost wake-up for 200 ms.
"""

import dataclasses

from tests.model.machine import END, Machine


@dataclasses.dataclass(frozen=True)
class Faults:
    """What broken code would do."""

    # Publish: WakeOthers before the store.
    looks_for_sleepers_first: bool = False
    # Publish: a store that is only release.
    publishes_late: bool = False
    # Wait: `asleep` is only released, and may come after the look at `done`.
    announces_late: bool = False
    # Wait: FutexWait right after `asleep` is set.
    sleeps_without_a_second_look: bool = False
    # Wait: `calls` is read after the look and not before.
    counts_calls_too_late: bool = False
    # Wake: FutexWakeAll alone.
    wakes_without_counting: bool = False
    # SetGone, Abort: Wake(index_) is left out.
    forgets_itself: bool = False
    # Wait: does not ask whether somebody has left.
    never_asks_who_left: bool = False


@dataclasses.dataclass(frozen=True)
class Scenario:
    ranks: int = 2
    chunks: int = 1
    # May be killed at any step. Rank `notices` is told, and calls SetGone.
    killed: int | None = None
    notices: int = 0
    # Its loop thread calls Abort at any time.
    aborted: int | None = None


def chunk_barrier(scenario, faults=None):
    """A model of ranks that publish and await chunk after chunk."""
    faults = faults or Faults()
    words = {"killed": 0}
    for rank in range(scenario.ranks):
        for name in ("done", "left", "asleep", "calls", "aborted"):
            words[f"{name}{rank}"] = 0
    programs = {
        f"rank {rank}": _rank(rank, scenario, faults)
        for rank in range(scenario.ranks)
    }
    if scenario.killed is not None:
        programs[f"loop {scenario.notices}"] = _set_gone(scenario, faults)
    if scenario.aborted is not None:
        programs[f"loop {scenario.aborted}"] = _abort(scenario, faults)
    return Machine(
        words=words,
        programs=programs,
        registers=("chunk", "calls", "lost"),
        mortal=None if scenario.killed is None else f"rank {scenario.killed}",
    )


def _rank(index, scenario, faults):
    """Publish(phase, chunk), then AwaitAll(phase, chunk), for each chunk."""
    others = [(index + i) % scenario.ranks for i in range(1, scenario.ranks)]
    program = {}

    # ChunkBarrier::Publish: the store of `done`.
    def publish(cpu):
        store = cpu.store_later if faults.publishes_late else cpu.store
        store(f"done{index}", cpu.registers["chunk"] + 1)
        return first_await if wakes_first else "wake others"

    first_await = f"await {others[0]}"
    wakes_first = faults.looks_for_sleepers_first
    begin = "wake others" if wakes_first else "publish"
    program["begin"] = lambda cpu: begin
    program["publish"] = publish

    # HasDone in ChunkBarrier::Await.
    def awaits(peer, then):
        def has_done(cpu):
            chunk = cpu.registers["chunk"] + 1
            return then if cpu.load(f"done{peer}") >= chunk else f"nap {peer}"

        program[f"await {peer}"] = has_done
        _wait(program, index, peer, then, scenario, faults)

    after = "publish" if wakes_first else first_await
    _wake_others(program, index, scenario, faults, "wake others", after)
    for peer, following in zip(others, [*others[1:], None], strict=True):
        then = "chunk done" if following is None else f"await {following}"
        awaits(peer, then)

    def chunk_done(cpu):
        cpu.registers["chunk"] += 1
        return END if cpu.registers["chunk"] == scenario.chunks else "begin"

    program["chunk done"] = chunk_done

    # Guard: ChunkBarrier::Leave after a failure.
    def leave(cpu):
        cpu.store(f"left{index}", 1)
        return "leave: wake others"

    program["leave"] = leave
    _wake_others(program, index, scenario, faults, "leave: wake others", END)
    return program


def _wait(program, index, peer, then, scenario, faults):
    """The loop of ChunkBarrier::Wait, without spinning (which only looks)."""
    at = f" {peer}"
    # Left out where nobody leaves.
    asks_who_left = (
        scenario.killed is not None or scenario.aborted is not None
    ) and not faults.never_asks_who_left

    # const uint32_t calls = bed.calls.load();
    def read_calls(cpu):
        cpu.registers["calls"] = cpu.load(f"calls{index}")
        return "sleep" + at if faults.counts_calls_too_late else "announce" + at

    # bed.asleep.store(1);
    def announce(cpu):
        store = cpu.store_later if faults.announces_late else cpu.store
        store(f"asleep{index}", 1)
        if faults.sleeps_without_a_second_look:
            return "sleep" + at
        return f"left?{at} 0" if asks_who_left else "look" + at

    program["nap" + at] = (
        announce if faults.counts_calls_too_late else read_calls
    )
    program["announce" + at] = announce

    # Lost(phase, chunk): `left` of each, then its `done`.
    def asks(other, following):
        def has_left(cpu):
            return (
                f"lost?{at} {other}" if cpu.load(f"left{other}") else following
            )

        def is_lost(cpu):
            if cpu.load(f"done{other}") <= cpu.registers["chunk"]:
                if cpu.registers["lost"] == 0:
                    cpu.registers["lost"] = 1 + other
            return following

        program[f"left?{at} {other}"] = has_left
        program[f"lost?{at} {other}"] = is_lost

    for other in range(scenario.ranks):
        last = other + 1 == scenario.ranks
        asks(other, "look" + at if last else f"left?{at} {other + 1}")

    # const bool over = lost >= 0 || done();
    def look(cpu):
        over = (
            cpu.registers["lost"] > 0
            or cpu.load(f"done{peer}") > cpu.registers["chunk"]
        )
        if over:
            return "awake" + at
        return "aborted?" + at

    def look_for_abort(cpu):
        if cpu.load(f"aborted{index}"):
            return "awake" + at
        return "count" + at if faults.counts_calls_too_late else "sleep" + at

    program["look" + at] = look
    program["aborted?" + at] = look_for_abort
    program["count" + at] = read_calls

    # FutexWait(bed.calls, calls, ...)
    def sleep(cpu):
        cpu.futex_wait(f"calls{index}", cpu.registers["calls"])
        return "awake" + at

    # bed.asleep.store(0);
    def awake(cpu):
        cpu.store(f"asleep{index}", 0)
        return "outcome" + at

    # ChunkBarrier::Outcome, or round again.
    def outcome(cpu):
        cpu.registers["calls"] = 0
        if cpu.load(f"done{peer}") > cpu.registers["chunk"]:
            cpu.registers["lost"] = 0
            return then
        if cpu.registers["lost"]:
            _check_name(cpu, index, scenario)
            return "leave"
        return "broken?" + at

    def broken(cpu):
        return "leave" if cpu.load(f"aborted{index}") else "nap" + at

    program["sleep" + at] = sleep
    program["awake" + at] = awake
    program["outcome" + at] = outcome
    program["broken?" + at] = broken


def _check_name(cpu, index, scenario):
    """Nobody but the dead one is to blame, if it was not an abort."""
    lost = cpu.registers["lost"] - 1
    if scenario.killed is not None and scenario.aborted is None:
        cpu.check(
            lost == scenario.killed,
            f"rank {index} blames rank {lost}, but rank {scenario.killed} "
            "was killed",
        )


def _wake_others(program, index, scenario, faults, label, then):
    """ChunkBarrier::WakeOthers, an instruction for each look and each wake."""
    others = [peer for peer in range(scenario.ranks) if peer != index]

    def name(i):
        return label if i == 0 else f"{label}: {others[i]}"

    for i, peer in enumerate(others):
        following = name(i + 1) if i + 1 < len(others) else then

        def is_asleep(cpu, peer=peer, following=following):
            asleep = cpu.load(f"asleep{peer}") != 0
            return f"{label}: call {peer}" if asleep else following

        program[name(i)] = is_asleep
        _wake(program, f"{label}: call {peer}", peer, following, faults)


def _wake(program, label, peer, then, faults):
    """ChunkBarrier::Wake."""

    def call(cpu):
        cpu.fetch_add(f"calls{peer}", 1)
        return f"{label}, wake"

    def wake(cpu):
        cpu.futex_wake(f"calls{peer}")
        return then

    program[label] = wake if faults.wakes_without_counting else call
    program[f"{label}, wake"] = wake


def _set_gone(scenario, faults):
    """The loop of a rank that sees a connection end: ChunkBarrier::SetGone."""
    program = {}
    index = scenario.notices

    # If nobody is killed, there is nothing to be told.
    def told(cpu):
        ended = all(
            cpu.threads[rank].at == END for rank in range(scenario.ranks)
        )
        if cpu.load("killed"):
            return "set gone"
        return END if ended else None

    def set_gone(cpu):
        cpu.store(f"left{scenario.killed}", 1)
        return "wake others" if faults.forgets_itself else "wake itself"

    program["told"] = told
    program["set gone"] = set_gone
    _wake(program, "wake itself", index, "wake others", faults)
    _wake_others(program, index, scenario, faults, "wake others", END)
    return program


def _abort(scenario, faults):
    """The loop of a rank that knows of a cause: ChunkBarrier::Abort."""
    index = scenario.aborted
    program = {}

    def abort(cpu):
        cpu.store(f"aborted{index}", 1)
        return END if faults.forgets_itself else "wake itself"

    program["abort"] = abort
    _wake(program, "wake itself", index, END, faults)
    return program
