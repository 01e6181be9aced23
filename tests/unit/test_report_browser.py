"""The page of a report as a browser shows it."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from matplotlib import image

from keras_ring.observe.report.analysis import analyse
from keras_ring.observe.report.page import as_html
from tests.unit.made_timelines import make
from tests.unit.test_report_page import JOBS

BROWSER = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(
        BROWSER is None,
        reason="needs chromium; `make browser-packages` installs it",
    ),
    pytest.mark.timeout(120),
]
# Writes into the page what the browser has made of it.
MEASURE = """
<script>
const box = (element) => element.getBoundingClientRect();
const texts = [...document.querySelectorAll("svg text")];
document.documentElement.innerHTML = "measured " + JSON.stringify({
  page: document.documentElement.scrollWidth,
  window: window.innerWidth,
  background: getComputedStyle(document.body).backgroundColor,
  ink: getComputedStyle(texts[0]).fill,
  figures: [...document.querySelectorAll("svg")].map((svg) =>
    [box(svg).width, box(svg).height]),
  outside: texts.filter((text) => {
    const own = box(text), all = box(text.closest("svg"));
    return own.left < all.left - 2 || own.right > all.right + 2 ||
      own.top < all.top - 2 || own.bottom > all.bottom + 2;
  }).map((text) => text.textContent),
}) + " end";
</script>
"""


@pytest.fixture(scope="module")
def pages():
    return {size: as_html(analyse(make(job))) for size, job in JOBS.items()}


@pytest.fixture
def browse(tmp_path):
    def run(page, width, *options):
        path = tmp_path / "page.html"
        path.write_text(page)
        done = subprocess.run(
            [
                *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu"),
                *("--disable-quic", "--no-first-run", "--disable-sync"),
                "--disable-background-networking",
                *("--disable-component-update", "--hide-scrollbars"),
                # Whatever it would fetch is nowhere.
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={tmp_path / 'profile'}",
                f"--window-size={width},1400",
                *options,
                path.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout

    return run


def measured(browse, page, width, *options):
    page = page.replace("</body>", MEASURE + "</body>")
    out = browse(page, width, "--dump-dom", *options)
    return json.loads(re.search(r"measured (.*) end", out, re.DOTALL)[1])


@pytest.mark.parametrize("size", JOBS)
def test_everything_is_within_the_page(browse, pages, size):
    found = measured(browse, pages[size], 1000)
    assert found["page"] <= found["window"] == 1000
    assert len(found["figures"]) == 5
    assert all(w > 800 and h > 100 for w, h in found["figures"])
    assert found["outside"] == []


def test_a_narrow_page_moves_figures_not_itself(browse, pages):
    # Chromium makes no window that is narrower.
    found = measured(browse, pages[8], 500)
    assert found["page"] <= found["window"] == 500


def test_ink_and_paper_are_light_or_dark(browse, pages):
    light, dark = (
        measured(browse, pages[2], 1000, f"--blink-settings={setting}")
        for setting in ("preferredColorScheme=1", "preferredColorScheme=0")
    )
    assert (light["background"], light["ink"]) == (
        "rgb(255, 255, 255)",
        "rgb(28, 30, 33)",
    )
    assert (dark["background"], dark["ink"]) == (
        "rgb(21, 24, 28)",
        "rgb(228, 231, 235)",
    )


def test_colours_are_on_the_picture(browse, pages, tmp_path):
    shot = tmp_path / "shot.png"
    browse(pages[8], 1000, f"--screenshot={shot}")
    pixels = (image.imread(shot)[:, :, :3] * 255).round().astype(int)
    assert pixels.shape == (1400, 1000, 3)
    for color in ("56a0d3", "d55e00", "009e73"):
        wanted = [int(color[at : at + 2], 16) for at in (0, 2, 4)]
        there = (abs(pixels - np.array(wanted)) <= 3).all(axis=2)
        assert there.sum() > 2000, color
