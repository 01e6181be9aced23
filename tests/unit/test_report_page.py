"""The page of a report, and the command that writes it."""

import dataclasses
import html.parser
import re
import sys

import pytest

from keras_ring.launch.cli import cli
from keras_ring.observe.report.analysis import analyse
from keras_ring.observe.report.page import as_html
from keras_ring.observe.timeline.merge import write
from tests.unit.made_timelines import Job, make, write_parts

JOBS = {
    2: Job(size=2, steps=8, slow_data={1: 5.0}),
    8: Job(size=8, steps=40, hosts=2, slow_compute={5: 5.0}),
    512: Job(size=512, steps=5, hosts=64, buckets=2, tensors=2),
}
# Of these tags there is no end.
VOID = {"meta", "br", "link", "img"}


class Reader(html.parser.HTMLParser):
    """Keeps what a page has, and fails if its tags do not match."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.text = [], [], [], []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        names = ("href", "src", "xlink:href")
        self.links += [given[name] for name in names if name in given]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)


def parsed(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@pytest.mark.parametrize("size", JOBS)
def test_a_page_of_any_size(size):
    page = as_html(analyse(make(JOBS[size])))
    assert len(page) < 600_000
    reader = parsed(page)
    assert len(reader.ids) == len(set(reader.ids))
    # Nothing is fetched: links are within the page, pictures in it.
    assert all(each.startswith(("#", "data:")) for each in reader.links)
    assert set(re.findall(r"url\((.)", page)) <= {"#"}
    assert "<script" not in page
    named = {each.removeprefix("#") for each in reader.links if each[0] == "#"}
    named |= set(re.findall(r"url\(#([^)]*)\)", page))
    assert named <= set(reader.ids)
    text = " ".join(reader.text)
    for title in ("Steps", "One step", "Where the time goes", "Overlap"):
        assert title in text
    assert page.count("<svg") == 5
    # No table grows with the number of ranks.
    assert page.count("<tr>") < 120


def test_names_are_no_markup():
    made = make(Job(size=2, steps=4))
    rank = dataclasses.replace(
        made.ranks[0],
        host="<script>alert(1)</script>",
        reason="a < b & c",
        names=dict.fromkeys(made.ranks[0].names, "<b>&amp;"),
    )
    page = as_html(analyse(dataclasses.replace(made, ranks=(rank,))))
    assert "<script" not in page and "<b>" not in page
    assert "&lt;b&gt;&amp;amp;" in page
    assert "its last error: a &lt; b &amp; c" in page


def test_a_page_without_steps_tells_what_there_is():
    made = make(Job(size=2, steps=2))
    ranks = [
        dataclasses.replace(rank, spans=rank.spans[:0], ended_ns=None)
        for rank in made.ranks
    ]
    page = as_html(analyse(dataclasses.replace(made, ranks=tuple(ranks))))
    text = " ".join(parsed(page).text)
    assert "The timeline has no steps" in text
    assert "no end: killed, or still running" in text
    assert "<svg" not in page


def test_memory_is_shown_if_it_was_counted():
    made = make(Job(size=2, steps=4))
    ranks = []
    for rank in made.ranks:
        number = next(n for n, x in rank.names.items() if x == "pending")
        names = {**rank.names, number: "arena_bytes_in_use"}
        spans = rank.spans.copy()
        spans["value"][spans["name"] == number] *= 1 << 20
        ranks.append(dataclasses.replace(rank, names=names, spans=spans))
    page = as_html(analyse(dataclasses.replace(made, ranks=tuple(ranks))))
    text = " ".join(parsed(page).text)
    assert re.search(r"arena bytes in use\s+3 MiB\s+3 MiB \(rank 1\)", text)
    assert "Memory" not in " ".join(parsed(as_html(analyse(made))).text)


# --- keras-ring report ---


def test_the_report_of_a_file_and_of_parts(tmp_path, capsys):
    made = make(JOBS[2])
    write(made, tmp_path / "t.json")
    write_parts(made, tmp_path / "t.json.ranks")
    assert cli.main(["report", str(tmp_path / "t.json")]) == 0
    page = tmp_path / "report.html"
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("Rank 1 was last in 100% of the steps")
    assert out[-1] == f"report in {page}; open it with a browser"
    other = tmp_path / "other.html"
    parts = str(tmp_path / "t.json.ranks")
    assert cli.main(["report", parts, "-o", str(other)]) == 0
    assert other.read_text() == page.read_text()


def test_what_cannot_be_reported(tmp_path, capsys, monkeypatch):
    missing = tmp_path / "t.json"
    assert cli.main(["report", str(missing)]) == 2
    assert f"error: {missing}: there is no such file" in capsys.readouterr().err
    write(make(JOBS[2]), missing)
    page = tmp_path / "no" / "page.html"
    assert cli.main(["report", str(missing), "-o", str(page)]) == 2
    assert f"error: {page}: No such file" in capsys.readouterr().err
    for name in list(sys.modules):
        if name.startswith("keras_ring.observe.report"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert cli.main(["report", str(missing)]) == 2
    assert "pip install 'keras-ring[report]'" in capsys.readouterr().err
