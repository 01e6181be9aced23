"""What is hoped for between hosts, and whether it is reached."""

import dataclasses
from collections.abc import Callable

from benchmarks.hosting.figures import AS_GRADIENTS, FLOOR, MPI, OURS, Place
from benchmarks.hosting.layout import UNLIMITED

# Given figures, a place and a case, a number or `None`.
Figure = Callable


def _time(figures, place, case):
    return figures.median_us(place, case, OURS)


def _time_as_gradients(figures, place, case):
    return figures.median_us(place, case, AS_GRADIENTS)


def _p90(figures, place, case):
    return figures.p90_us(place, case, OURS)


def _cpu(figures, place, case):
    return figures.cpu_s_per_gb(place, case, OURS)


def _floor(figures, place, case):
    return figures.median_us(place, case, FLOOR)


def _mpi(figures, place, case):
    return figures.median_us(place, case, MPI)


def _best_peer(figures, place, case):
    return figures.best_peer(place, case, figures.median_us)


def _best_peer_cpu(figures, place, case):
    return figures.best_peer(place, case, figures.cpu_s_per_gb)


def _own_2x1(figures, place, case):
    return figures.median_us(Place("2x1", place.link), case, OURS)


def _tcp(figures, place, case):
    return figures.bound_us(place, case)


def _rate_of_resnet50(figures, place, case):
    """The time that the case would take at the GB/s of ResNet-50's."""
    one = figures.median_us(place, "resnet50", OURS)
    of_bytes = figures.num_bytes(place, "resnet50")
    return one and one * figures.num_bytes(place, case) / of_bytes


@dataclasses.dataclass(frozen=True)
class Bound:
    """What a figure of ours is compared with.

    Args:
        words: How a table calls it.
        figure: What ours is.
        reference: What it is compared with.
        unit: Of both.
    """

    words: str
    figure: Figure
    reference: Figure
    unit: str = "us"

    def as_gradients(self):
        """Returns it for tensors that are reduced as a training does it."""
        words = f"{self.words}, as gradients"
        return dataclasses.replace(self, words=words, figure=_time_as_gradients)


PEER = Bound("the best peer", _time, _best_peer)
PEER_CPU = Bound("the best peer's CPU time", _cpu, _best_peer_cpu, "s/GB")
OPEN_MPI = Bound("Open MPI", _time, _mpi)
NOTHING = Bound("no collective", _time, _floor)
TCP = Bound("plain TCP", _time, _tcp)
OWN = Bound("our own 2x1", _time, _own_2x1)
RESNET50 = Bound("at ResNet-50's GB/s", _time, _rate_of_resnet50)
MEDIAN = Bound("the median, nine in ten", _p90, _time)


@dataclasses.dataclass(frozen=True)
class Target:
    """Ours is at most so many times something.

    Args:
        place: Where.
        case: Of what.
        bound: What is compared with what.
        factor: How many times.
        more_us: And so many microseconds.
    """

    place: Place
    case: str
    bound: Bound
    factor: float
    more_us: float = 0.0

    def words(self):
        """Returns it as text: "0.65 x the best peer"."""
        text = f"{self.factor:g} x {self.bound.words}"
        return f"{text} + {self.more_us:g} us" if self.more_us else text

    def limit(self, figures):
        """Returns what ours may be; `None` if that was not measured."""
        reference = self.bound.reference(figures, self.place, self.case)
        if reference is None:
            return None
        return self.factor * reference + self.more_us

    def reached(self, figures):
        """Returns what ours is; `None` if it was not measured."""
        return self.bound.figure(figures, self.place, self.case)

    def share(self, figures):
        """Returns as text how far ours is from what it is compared with."""
        reached = self.reached(figures)
        reference = self.bound.reference(figures, self.place, self.case)
        if self.more_us:
            return f"{reached - self.factor * reference:+.0f} us"
        return f"{reached / reference:.2f} x"


def _targets(layouts, link, cases, bound, factor, **more):
    return [
        Target(Place(layout, link), case, bound, factor, **more)
        for layout in layouts
        for case in cases
    ]


def _sets_of_small(layouts, link, case, bound, factor):
    """As an op for each tensor, and as a training reduces them."""
    return [
        *_targets(layouts, link, [case], bound, factor),
        *_targets(layouts, link, [case], bound.as_gradients(), factor),
    ]


_TWO = ("2x1", "2x2")
_ALONE = ("1x2", "1x4")
_LARGE = ("resnet50", "128MiB")
_NARROW = [f"{case}:{how}" for case in _LARGE for how in ("fp16", "bf16")]

TARGETS = (
    *_targets(["2x1"], UNLIMITED, ["4B"], NOTHING, 1.0, more_us=150.0),
    *_targets(["2x1"], UNLIMITED, ["resnet50"], PEER, 0.65),
    *_targets(["2x1"], UNLIMITED, ["128MiB"], PEER, 0.6),
    *_sets_of_small(["2x1"], UNLIMITED, "many_small", PEER, 0.6),
    *_targets(["2x2"], UNLIMITED, ["resnet50"], OWN, 1.5),
    *_targets(["2x2"], UNLIMITED, ["resnet50"], PEER, 0.5),
    *_targets(["4x1", "4x2"], UNLIMITED, ["resnet50"], PEER, 0.6),
    *_targets(_TWO, "10gbit", _LARGE, TCP, 1.15),
    *_targets(_TWO, "10gbit", _LARGE, PEER_CPU, 0.7),
    *_targets(_TWO, "1gbit", _LARGE, TCP, 1.03),
    *_targets(_TWO, "1gbit", _NARROW, TCP, 0.55),
    *_sets_of_small(_TWO, "1gbit", "many_small", PEER, 0.9),
    *_targets(_TWO, "1gbit", ["64KiB", "1MiB"], PEER, 0.9),
    *_targets(_ALONE, UNLIMITED, ["vgg16", "bert_large"], RESNET50, 1.0),
    *_sets_of_small(_ALONE, UNLIMITED, "mixed", OPEN_MPI, 1.3),
    *_sets_of_small(_ALONE, UNLIMITED, "mixed", NOTHING, 4.0),
    *_targets(_ALONE, UNLIMITED, ["64KiB", "1MiB"], MEDIAN, 1.3),
)


def cases_at(place):
    """Returns the names of the cases that the targets of a place need."""
    found = []
    for target in TARGETS:
        if target.place == place:
            found.append(target.case)
            if target.bound is RESNET50:
                found.append("resnet50")
        if target.bound is OWN and place == Place("2x1", target.place.link):
            found.append(target.case)
    return list(dict.fromkeys(found))
