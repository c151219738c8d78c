"""The built book in a browser: whole, light, legible on a telephone, and asking nothing of the outside."""

import functools
import http.server
import re
import shutil
import threading
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import yaml
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "book"
HTML = ROOT / "_build" / "html"
BOOK_PAGES = [f"book/{page.name}" for page in sorted(HTML.glob("book/*.html"))]
PAGES = [*BOOK_PAGES, "genindex.html", "search.html"]
# A page with its images and data; the files that all pages share, the theme's and MathJax's, apart.
MOST_BYTES = 1_000_000
PHONE = {"width": 390, "height": 844}
# A browser looks for updates and the like on its own: not while it counts the page's requests.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    program = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
    if program is None:
        pytest.fail("no browser: install Debian's package chromium (or Chrome)", pytrace=False)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=QUIET)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def site():
    """Serve the built book and return its address."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Silent, directory=HTML)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def open_page(browser, address, wait_until="networkidle", **options):
    """Open a page and wait for its mathematics; ``page.asked`` and ``page.trouble`` tell what happened."""
    page = browser.new_context(**options).new_page()
    page.asked, page.trouble = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("requestfailed", lambda request: page.trouble.append(f"failed: {request.url}"))
    page.on("response", lambda got: got.status >= 400 and page.trouble.append(f"{got.status}: {got.url}"))
    page.on("console", lambda said: said.type == "error" and page.trouble.append(said.text))
    page.on("pageerror", lambda error: page.trouble.append(str(error)))
    page.goto(address, wait_until=wait_until)
    page.evaluate("window.MathJax && MathJax.startup && MathJax.startup.promise")
    return page


@pytest.fixture(scope="module", params=PAGES)
def page(request, browser, site):
    """Each page of the site, opened once for all the tests that only look."""
    opened = open_page(browser, site + request.param)
    opened.name = request.param
    yield opened
    opened.context.close()


def test_every_page_is_built():
    assert sorted(f"book/{source.stem}.html" for source in SOURCES.glob("*.md")) == BOOK_PAGES
    assert BOOK_PAGES


def test_root_opens_the_book(browser, site):
    page = browser.new_page()
    page.goto(site)
    page.wait_for_url(site + "book/index.html")
    page.close()


def test_page_loads_without_a_complaint(page):
    assert page.trouble == []


def test_page_asks_nothing_of_the_outside(page, site):
    assert [url for url in page.asked if not url.startswith((site, "data:", "blob:"))] == []


def test_page_has_one_h1(page):
    assert page.locator("h1").count() == 1


def test_images_have_alternative_text(page):
    images = page.eval_on_selector_all("img", "images => images.map(image => [image.alt.trim(), image.src])")
    assert [source for alt, source in images if not alt or re.search(r"[0-9a-f]{16}", alt)] == []


def test_no_raw_markup_is_left(page):
    """Directives, roles and formulas that nothing has read stay in the text as they are."""
    text = page.evaluate(
        """() => {
            const body = document.body.cloneNode(true);
            body.querySelectorAll("pre, code, script, style, mjx-container").forEach(part => part.remove());
            return body.textContent;
        }"""
    )
    directives = r":::.*|```.*|\{[a-z][\w:-]*\}`.*|^\s*\{[a-z][\w:-]*\}.*"
    mathematics = r"\$\$.*|\$[^$\n]*[\\^_][^$\n]*\$"
    assert re.findall(f"{directives}|{mathematics}", text, re.MULTILINE) == []


def test_mathematics_is_set(page):
    source = SOURCES / Path(page.name).with_suffix(".md").name
    if page.name.startswith("book/"):
        prose = re.sub(
            r"^(`{3,}|~{3,})\{code-cell\}.*?^\1$|`[^`\n]*`", "", source.read_text(), flags=re.DOTALL | re.M
        )
        assert (page.locator("mjx-container").count() > 0) == ("$" in prose)
    assert page.locator(".math:not(:has(mjx-container))").count() == 0
    assert page.locator("mjx-merror, [data-mjx-error]").count() == 0


def test_internal_links_lead_somewhere(page, site):
    links = page.eval_on_selector_all("a[href]", "links => links.map(link => link.href)")
    for link in sorted({link for link in links if link.startswith(site)}):
        address, fragment = urldefrag(link.removeprefix(site))
        target = HTML / unquote(address.partition("?")[0] or "index.html")
        assert target.is_file(), link
        if fragment:
            assert f'id="{unquote(fragment)}"' in target.read_text(encoding="utf-8"), link


def test_launch_buttons_open_the_twin(page):
    repository = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]
    owner_and_name = repository["url"].removeprefix("https://github.com/")
    twin = Path(page.name).with_suffix(".ipynb")
    wanted = {
        f"https://mybinder.org/v2/gh/{owner_and_name}/{repository['branch']}?urlpath=lab/tree/{twin}",
        f"https://colab.research.google.com/github/{owner_and_name}/blob/{repository['branch']}/{twin}",
    }
    links = page.eval_on_selector_all(
        ".article-header-buttons a[href]", "links => links.map(link => link.href)"
    )
    buttons = {link for link in links if "mybinder.org" in link or "colab." in link}
    assert buttons == (wanted if (ROOT / twin).exists() else set())


def test_page_is_light(page, site):
    images = page.eval_on_selector_all("img", "images => images.map(image => image.src)")  # lazy ones too
    own = {url for url in [*page.asked, *images] if url.startswith(site) and "/_static/" not in url}
    files = [HTML / unquote(urldefrag(url).url.removeprefix(site).partition("?")[0]) for url in own]
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_nothing_sticks_out_on_a_telephone(browser, site, name, scheme):
    page = open_page(browser, site + name, wait_until="load", viewport=PHONE, color_scheme=scheme)
    assert page.locator("html").get_attribute("data-theme") == scheme
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.context.close()


TRAINING = "book/07-training.html"


@pytest.fixture
def player(browser, site, request):
    """The first attention player of the chapter on training, alone on its page's screen."""
    options = getattr(request, "param", {})
    page = open_page(browser, site + TRAINING, wait_until="load", **options)
    yield page.locator(".edgewise-player").first
    if options.get("java_script_enabled", True):  # else the theme's preloaded scripts count as failed
        assert page.trouble == []
    page.context.close()


def edges_drawn(player):
    """Pairs (sender's x, receiver's x) of the lines that can be seen."""
    return player.locator("line.edge").evaluate_all(
        "lines => lines.filter(l => l.getAttribute('visibility') !== 'hidden')"
        ".map(l => [Number(l.getAttribute('x1')), Number(l.getAttribute('x2'))])"
    )


def test_player_shows_the_last_moment_of_its_first_view(player):
    slider = player.get_by_role("slider")
    assert slider.input_value() == slider.get_attribute("max") != "0"
    view = player.get_by_label("View", exact=True)
    assert view.locator("option:checked").inner_text() == "source to target"
    assert player.locator("img").count() == 0
    assert len(edges_drawn(player)) > 10


def test_player_draws_only_edges_of_the_view(player):
    player.get_by_label("View", exact=True).select_option("target to target")
    size = player.locator(".graph text").count() // 2 - 1  # besides the names of the two sides
    pairs = edges_drawn(player)
    assert player.locator("line.edge").count() == player.locator("rect.weight").count()
    assert player.locator("line.edge").count() == size * (size + 1) // 2
    assert pairs
    assert all(sender <= receiver for sender, receiver in pairs), "nobody hears a later token"
    assert "target to target" in player.locator(".graph").get_attribute("aria-label")


def test_player_obeys_the_keyboard(player):
    slider = player.get_by_role("slider")
    slider.focus()
    slider.press("Home")
    assert player.locator("output").inner_text() == "step 0"
    slider.press("ArrowRight")
    assert player.locator("output").inner_text() == "step 12"
    player.get_by_label("View", exact=True).select_option("target to target")
    matrix = player.locator(".matrix")
    matrix.focus()
    for key in ("ArrowDown", "ArrowRight"):
        matrix.press(key)
    assert "(1) has no edge from" in player.locator("p").inner_text()
    matrix.press("ArrowLeft")
    assert re.search(r"step 12: .* \(1\) gives .* \(1\) 1\.000", player.locator("p").inner_text())


def test_player_plays_to_the_end_and_stops(player):
    slider = player.get_by_role("slider")
    slider.fill(str(int(slider.get_attribute("max")) - 2))
    player.get_by_role("button", name="Play").click()
    assert player.get_by_role("button", name="Pause").count() == 1
    player.get_by_role("button", name="Play").wait_for(timeout=10_000)
    assert slider.input_value() == slider.get_attribute("max")


@pytest.mark.parametrize("player", [{"reduced_motion": "reduce"}], indirect=True)
def test_player_moves_only_when_told_where_motion_is_unwelcome(player):
    player.get_by_role("button", name="Next").click()
    assert player.locator("output").inner_text() == "step 0"
    player.page.wait_for_timeout(1000)
    assert player.locator("output").inner_text() == "step 0"


def test_players_of_a_page_go_their_own_ways(player):
    other = player.page.locator(".edgewise-player").nth(1)
    before = other.locator("output").inner_text()
    player.get_by_role("slider").press("Home")
    assert other.locator("output").inner_text() == before
    strengths = "lines => lines.map(line => line.getAttribute('stroke-opacity'))"
    first = other.locator("line.edge").evaluate_all(strengths)
    other.get_by_label("Head", exact=True).select_option("head 1")
    assert other.locator("line.edge").evaluate_all(strengths) != first


@pytest.mark.parametrize("player", [{"java_script_enabled": False}], indirect=True)
def test_player_is_a_described_picture_without_a_script(player):
    picture = player.locator("img")
    assert "source to target" in picture.get_attribute("alt")
    assert picture.evaluate("image => image.naturalWidth") > 200
    assert player.locator("button").count() == 0
