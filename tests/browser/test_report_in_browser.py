"""The report in a real browser: it is drawn, it asks nobody, hostile text does nothing, and everyone can read it."""

import os
import shutil
import time

import numpy as np
import pytest

from coalmine import read_run, read_runs
from coalmine.audits.exposure.results import CandidateScores
from coalmine.randomness import arrays
from coalmine.reports.page.html import report_page
from coalmine.statistics import reference_exposures
from reports import report_runs as made
from reports.large_runs import TEMPLATES, save_large_run
from waiting import PATIENCE_SECONDS

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install 'coalmine[dev]'"
)
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium was found: install Debian's package chromium"
)

SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


class Opened:
    """A page with all that it said and asked for."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(
            accept_downloads=True, **({"viewport": {"width": 1280, "height": 900}} | options)
        )
        self.context.set_default_timeout(1000 * PATIENCE_SECONDS)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.path = path
        self.page.goto(path.as_uri(), wait_until="load")
        self.page.evaluate("for (const fold of document.querySelectorAll('details.fold')) fold.open = true")
        self.page.locator("figure[data-drawn]").first.wait_for(state="attached")

    def wait_for_figures(self):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.page.locator("figure:not([data-drawn])").count():
            assert time.monotonic() < deadline, f"figures were not drawn: {self.said}"
            self.page.wait_for_timeout(50)
        return self

    def check_quiet(self):
        assert self.said == []
        assert self.asked == [self.path.as_uri()]


@pytest.fixture
def opened(browser):
    contexts = []

    def open_page(path, **options):
        one = Opened(browser, path, **options)
        contexts.append(one.context)
        return one

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    directory = tmp_path_factory.mktemp("browser")
    canaries = made.audited_run(directory, claimed_epsilon=1.0)
    made.save_training(directory, watched=made.watch_records(canaries))
    path = directory / "report.html"
    path.write_text(report_page(read_runs(directory)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def shown(browser, report):
    """The report with all figures, open for tests that only look at it."""
    one = Opened(browser, report).wait_for_figures()
    yield one
    one.context.close()


def test_every_figure_is_drawn_and_nobody_is_asked(shown):
    figures = shown.page.locator("figure")
    assert figures.count() == 5
    for place in range(figures.count()):
        marks = figures.nth(place).locator(
            ".drawing svg .mark-symbol path, .drawing svg .mark-line path, .drawing svg .mark-rect path"
        )
        assert marks.count() > 0
    shown.check_quiet()


def test_the_first_screen_answers(shown):
    page = shown.page
    assert (
        page.locator("h1").inner_text()
        == "The model memorized 2 of 12 canaries. 2 of 12 canaries can be extracted."
    )
    for card in page.locator(".answers li").all():
        box = card.bounding_box()
        assert box["y"] + box["height"] < 900


def test_a_reader_can_point_and_save(opened, report, tmp_path):
    one = opened(report).wait_for_figures()
    figure = one.page.locator("figure[data-figure=exposure-by-repetitions]")
    points = figure.locator(".mark-symbol.role-mark path")
    assert points.count() == 18
    points.first.hover(force=True)
    one.page.locator("#vg-tooltip-element.visible").wait_for()
    assert "exposure (bits)" in one.page.locator("#vg-tooltip-element").inner_text()
    saved = {}
    for name in ("Save as SVG", "Save as data (CSV)"):
        with one.page.expect_download() as download:
            figure.get_by_role("button", name=name).click()
        target = tmp_path / download.value.suggested_filename
        download.value.save_as(target)
        saved[target.suffix] = target.read_text(encoding="utf-8")
    assert saved[".svg"].startswith("<svg")
    lines = saved[".csv"].splitlines()
    assert lines[0].startswith("canary,format,trained on")
    assert len(lines) == 19
    one.check_quiet()


def test_the_canaries_can_be_searched_and_sorted(opened, report):
    page = opened(report).page
    rows = page.locator("[data-search=canaries] tbody tr")
    assert rows.count() == 18
    page.get_by_label("Search").fill("x16-5")
    assert rows.count() == 1
    page.get_by_label("Search").fill("")
    page.locator("[data-search=canaries] thead button").first.click()
    assert rows.first.locator("td").first.inner_text() == "f0-x16-5"
    assert page.locator("[data-search=canaries] thead th").first.get_attribute("aria-sort") == "descending"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_everyone_can_read_it(opened, report, scheme, width):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    )
    one = opened(report, color_scheme=scheme, viewport={"width": width, "height": 844}).wait_for_figures()
    # A finding's numbers and a figure's numbers are hidden until they are asked for.
    one.page.evaluate(
        "for (const part of [...document.querySelectorAll('details')].slice(0, 3)) part.open = true"
    )
    one.page.evaluate(
        "for (const part of [...document.querySelectorAll('figure details')].slice(0, 1)) part.open = true"
    )
    response = axe.Axe().run(one.page).response
    serious = [
        (each["id"], [node["html"][:120] for node in each["nodes"][:3]])
        for each in response["violations"]
        if each["impact"] in SERIOUS
    ]
    assert serious == []
    assert "color-contrast" in {each["id"] for each in response["passes"]}


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280)])
def test_it_fits_a_phone_and_the_dark(opened, report, scheme, width):
    page = (
        opened(report, color_scheme=scheme, viewport={"width": width, "height": 844}).wait_for_figures().page
    )
    # Nothing is wider than the screen but what scrolls by itself.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Five formats, five numbers of copies, nine models with long names, every audit."""
    directory = tmp_path_factory.mktemp("large")
    save_large_run(directory)
    path = directory / "report.html"
    path.write_text(report_page([read_run(directory)]), encoding="utf-8")
    return path


# What is wrong with the texts and symbols of the drawings: cut off, or hard to see. A text counts as cut where it leaves its own
# drawing or the window, or is shortened.
WHAT_IS_WRONG = """() => {
  const wrong = [];
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = (color) => {
    const [r, g, b] = numbers(color).slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const paper = getComputedStyle(document.body).backgroundColor;
  for (const figure of document.querySelectorAll("figure[data-figure]")) {
    for (const drawing of figure.querySelectorAll(".drawing")) {
      const room = drawing.getBoundingClientRect();
      const tell = (what, node) => wrong.push(`${figure.dataset.figure}: ${what}: ${node.textContent || node.getAttribute("fill")}`);
      if (!drawing.querySelector("svg")) tell("no drawing", drawing);
      for (const text of drawing.querySelectorAll("svg text")) {
        const style = getComputedStyle(text), box = text.getBoundingClientRect();
        if (!text.textContent.trim() || Number(style.opacity) === 0 || !box.width) continue;
        if (box.left < room.left - 1 || box.right > room.right + 1 || box.right > innerWidth) tell("cut off", text);
        if (text.textContent.endsWith("\u2026")) tell("shortened", text);
        if (contrast(style.fill, paper) < 4.5) tell("faint", text);
      }
      const symbols = [...drawing.querySelectorAll(".role-legend-symbol path")];
      for (const symbol of symbols) {
        const { fill, stroke } = getComputedStyle(symbol);
        const seen = [fill, stroke].filter((color) => color !== "none" && numbers(color)[3] !== 0);
        if (!seen.some((color) => contrast(color, paper) >= 3)) tell("faint symbol", symbol);
      }
      const kinds = symbols.map((symbol) => symbol.getAttribute("fill") + symbol.getAttribute("stroke") + symbol.getAttribute("d"));
      if (new Set(kinds).size < kinds.length) tell("series that look alike", drawing);
    }
  }
  for (const node of document.querySelectorAll("h1, h2, h3, h4, p, figcaption, button, select, .panel")) {
    const box = node.getBoundingClientRect();
    if (box.width && !node.closest(".scroll, .skip, .unseen") && (box.left < 0 || box.right > innerWidth + 1)) wrong.push(`page: ${node.textContent.slice(0, 60)}`);
  }
  return wrong;
}"""


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 768), ("light", 1280)])
def test_nothing_in_a_large_report_is_cut_off_or_faint(opened, large, scheme, width):
    one = opened(large, color_scheme=scheme, viewport={"width": width, "height": 844}).wait_for_figures()
    assert one.page.evaluate("document.documentElement.scrollWidth") <= width
    assert one.page.evaluate(WHAT_IS_WRONG) == []
    panels = one.page.locator("figure[data-figure=roc] .panel h4").all_inner_texts()
    assert panels[0] == TEMPLATES["f0"]
    assert len(panels) == len(TEMPLATES)
    one.check_quiet()


def test_the_check_notices_what_is_cut_off_and_faint(opened, large):
    one = opened(large, color_scheme="dark", viewport={"width": 390, "height": 844}).wait_for_figures()
    one.page.evaluate(
        """() => {
          const [first, second, third] = document.querySelectorAll("figure[data-figure=roc] svg .role-legend-label text");
          first.textContent = "a name that is far too long for a phone, and for most windows";
          second.style.fill = "#333333";
          third.textContent = "a na\u2026";
        }"""
    )
    wrong = one.page.evaluate(WHAT_IS_WRONG)
    assert [line.split(": ")[1] for line in wrong] == ["cut off", "faint", "shortened"]


def test_all_panels_are_saved_as_one_picture(opened, large, tmp_path):
    one = opened(large).wait_for_figures()
    figure = one.page.locator("figure[data-figure=exposure-by-repetitions]")
    with one.page.expect_download() as download:
        figure.get_by_role("button", name="Save as SVG").click()
    download.value.save_as(tmp_path / "figure.svg")
    saved = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert saved.count("<svg") == 1 + len(TEMPLATES)
    assert "call {digits:3}" in saved


def test_the_keyboard_reaches_what_the_mouse_does(opened, report):
    page = opened(report).wait_for_figures().page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    wanted = {"A:Findings", "SUMMARY:The numbers", "BUTTON:Save as SVG"}
    reached = set()
    for _ in range(80):
        if wanted <= reached:
            break
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.tagName + ':' + document.activeElement.textContent.trim().slice(0, 11)"
            )
        )
    assert wanted <= reached


def test_it_can_be_printed(shown):
    assert len(shown.page.pdf(format="A4")) > 20_000
    shown.check_quiet()


def test_hostile_text_does_nothing(opened, tmp_path):
    hostile = (
        "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'`${window.hacked=1}\x1b[2J"
    )
    scores = [1.0, 30.0, 40.0]
    estimates = reference_exposures(scores, np.arange(20.0, 120.0))
    results = [
        made.exposure_result(f"{hostile}{number}", one, times=2 - number, bits=scores[number])
        for number, one in enumerate(estimates)
    ]
    document = made.exposure_document(results, method="references", warnings=(hostile,))
    document.model["weights"] = hostile
    made.save_exposures(
        tmp_path, document, CandidateScores("f0", "reference", np.arange(100), np.arange(20.0, 120.0))
    )
    path = tmp_path / "hostile.html"
    path.write_text(report_page([read_run(tmp_path)]), encoding="utf-8")
    one = opened(path).wait_for_figures()
    one.page.locator(".mark-symbol.role-mark path").first.hover(force=True)
    one.page.locator("#vg-tooltip-element.visible").wait_for()
    one.page.get_by_label("Search").fill("script")
    assert one.page.evaluate("window.hacked") is None
    assert one.page.locator("img").count() == 0
    one.check_quiet()


def test_a_large_report_is_small_and_opens(opened, tmp_path):
    generator = arrays(0, "report", "large")
    scores = generator.normal(60.0, 5.0, 1_000_000)
    times = np.repeat([0, 1, 4, 16, 64], 2_000)
    bits = generator.normal(60.0, 5.0, 10_000) - 3.0 * np.log2(1 + times)
    estimates = reference_exposures(bits, scores[:10_000])
    results = [
        made.exposure_result(f"canary-{number}", one, times=int(times[number]), bits=float(bits[number]))
        for number, one in enumerate(estimates)
    ]
    made.save_exposures(
        tmp_path,
        made.exposure_document(results, method="references"),
        CandidateScores("f0", "sample", np.arange(1_000_000), scores),
    )
    path = tmp_path / "large.html"
    path.write_text(report_page([read_run(tmp_path)]), encoding="utf-8")
    one = opened(path)
    # What makes it open quickly: a small file, and no more drawn than can be looked at.
    assert path.stat().st_size < 20e6
    assert "2,000 of 10,000 canaries are drawn" in one.page.locator("figcaption").first.inner_text()
    assert one.page.locator("[data-search=canaries] [role=status]").inner_text() == "1 to 100 of 10,000"
    one.wait_for_figures().check_quiet()
