"""Where the ranks of a job are, and what is between their hosts."""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Layout:
    """So many hosts with so many ranks each.

    Args:
        hosts: Those of the lab, from the first.
        ranks: On each of them.
    """

    hosts: int
    ranks: int

    @property
    def size(self):
        """Ranks of the job."""
        return self.hosts * self.ranks

    @property
    def host_list(self):
        """As launchers take it: `kr-h0:2,kr-h1:2`."""
        return ",".join(f"kr-h{i}:{self.ranks}" for i in range(self.hosts))

    def __str__(self):
        """As it is typed: `2x1`."""
        return f"{self.hosts}x{self.ranks}"


def parse_layout(text):
    """Returns the layout of `"2x1"`: two hosts with a rank each.

    Raises:
        ValueError: If it is none.
    """
    match = re.fullmatch(r"([1-9]\d?)x([1-9]\d?)", text, re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not of the form HOSTSxRANKS, as 2x1 is")
    return Layout(int(match[1]), int(match[2]))


UNLIMITED = "unlimited"


def link_options(link):
    """Returns what `tests/lab/hosts up` takes for `"unlimited"`, `"10gbit"`.

    Raises:
        ValueError: If it is neither.
    """
    if link == UNLIMITED:
        return ()
    if not re.fullmatch(r"[1-9]\d*[mg]bit", link, re.ASCII):
        raise ValueError(f"{link!r} is neither unlimited nor a rate, as 10gbit")
    return ("--rate", link)
