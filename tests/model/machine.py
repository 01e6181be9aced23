"""Threads that share words of memory, one access to memory at a time.

A thread is a program: a dictionary of labelled instructions, each a function
that is given a `Cpu`, makes at most one access to shared memory, and returns
the label of the next one (as in PlusCal), or a tuple of labels if any of them
may be next. An instruction that returns None may not be taken now.

Accesses are sequentially consistent, except `store_later`: that one is what
C++ calls a relaxed or release store. It waits in the thread's own buffer, as on
x86, until a step of its own brings it to memory; an access that C++ calls
sequentially consistent brings all before it (if it writes) and later reads of
the same thread may overtake it.
"""

from typing import NamedTuple

from tests.model.explorer import Violation

END = "end"


class Thread(NamedTuple):
    at: str
    registers: tuple = ()
    buffer: tuple = ()  # of (word, value): not in memory yet
    sleeps_on: str = ""  # a futex


class State(NamedTuple):
    words: tuple
    threads: tuple[Thread, ...]


class Cpu:
    """One thread's view of the memory while it takes one step."""

    def __init__(self, machine, state, index):
        self.machine = machine
        self.words = list(state.words)
        self.threads = list(state.threads)
        self.index = index
        thread = state.threads[index]
        self.label = f"{machine.names[index]}: {thread.at}"
        self.registers = dict(
            zip(machine.registers, thread.registers, strict=True)
        )
        self.buffer = thread.buffer
        self.sleeps_on = ""

    def load(self, word):
        for name, value in reversed(self.buffer):
            if name == word:
                return value
        return self.words[self.machine.address[word]]

    def store(self, word, value):
        self._flush()
        self.words[self.machine.address[word]] = value

    def store_later(self, word, value):
        if self.machine.buffers:
            self.buffer += ((word, value),)
        else:
            self.store(word, value)

    def exchange(self, word, value):
        before = self.words[self.machine.address[word]]
        self._flush()
        self.words[self.machine.address[word]] = value
        return before

    def compare_exchange(self, word, expected, value):
        self._flush()
        same = self.words[self.machine.address[word]] == expected
        if same:
            self.words[self.machine.address[word]] = value
        return same

    def fetch_add(self, word, value):
        self._flush()
        self.words[self.machine.address[word]] += value

    def futex_wait(self, word, expected):
        """Sleeps if the word is still as expected. Without a limit."""
        self._flush()
        if self.words[self.machine.address[word]] == expected:
            self.sleeps_on = word

    def futex_wake(self, word):
        self._flush()
        self.threads = [
            thread._replace(sleeps_on="")
            if thread.sleeps_on == word
            else thread
            for thread in self.threads
        ]

    def check(self, holds, what):
        if not holds:
            raise Violation(what, self.label)

    def _flush(self):
        for word, value in self.buffer:
            self.words[self.machine.address[word]] = value
        self.buffer = ()

    def after(self, at):
        registers = tuple(self.registers[r] for r in self.machine.registers)
        self.threads[self.index] = Thread(
            at, registers, self.buffer, self.sleeps_on
        )
        return State(tuple(self.words), tuple(self.threads))


class Machine:
    """A model whose threads run `programs`.

    Args:
        words: The shared words and what they begin with.
        programs: By name of the thread: its instructions by label. The first
            is where it begins.
        registers: The names of what a thread keeps for itself; zero at first.
        mortal: The name of a thread that may be killed at any step; the word
            `killed` is 1 from then on.
        buffers: Whether stores may be late.
    """

    def __init__(
        self, *, words, programs, registers=(), mortal=None, buffers=True
    ):
        self.words = words
        self.address = {word: i for i, word in enumerate(words)}
        self.names = list(programs)
        self.programs = list(programs.values())
        self.registers = tuple(registers)
        self.mortal = mortal
        self.buffers = buffers

    def initial(self):
        zeros = (0,) * len(self.registers)
        return State(
            tuple(self.words.values()),
            tuple(
                Thread(next(iter(program)), zeros) for program in self.programs
            ),
        )

    def actions(self, state):
        for index, thread in enumerate(state.threads):
            if thread.buffer:
                yield self._memory_takes(state, index)
            if thread.at == END:
                continue
            if self.names[index] == self.mortal:
                cpu = Cpu(self, state, index)
                cpu.store("killed", 1)
                yield f"{self.mortal} is killed", cpu.after(END)
            if thread.sleeps_on:
                continue
            cpu = Cpu(self, state, index)
            after = self.programs[index][thread.at](cpu)
            if isinstance(after, str):
                after = (after,)
            for at in after or ():
                yield cpu.label, cpu.after(at)

    def _memory_takes(self, state, index):
        thread = state.threads[index]
        (word, value), *rest = thread.buffer
        words = list(state.words)
        words[self.address[word]] = value
        threads = list(state.threads)
        threads[index] = thread._replace(buffer=tuple(rest))
        label = f"the memory takes {word} = {value} of {self.names[index]}"
        return label, State(tuple(words), tuple(threads))

    def is_final(self, state):
        return all(
            thread.at == END and not thread.buffer for thread in state.threads
        )

    def fault(self, state):
        return None
