"""The built book in a browser: whole, light, legible on a telephone, and asking nothing of the outside."""

import builtins
import functools
import itertools
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import yaml

from browser import HTML, LOOKS, ROOT, SCREEN, chromium, served
from browser import PAGES as BOOK_PAGES

sys.path.insert(0, str(ROOT / "book" / "_ext"))

import repository
import works_cited

SOURCES = ROOT / "book"
PAGES = [*BOOK_PAGES, "genindex.html", "search.html", "404.html"]
# A page with its images and data; the files that all pages share, the theme's and MathJax's, apart.
MOST_BYTES = 1_000_000
# The rules of WCAG 2.2, levels A and AA, as axe-core knows them.
AXE = (Path(find_spec("axe_playwright_python").origin).parent / "axe.min.js").read_text(encoding="utf-8")
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# What decides how soon a page is painted, on any machine; how far what was painted may shift afterwards.
MOST_BLOCKING, MOST_ELEMENTS, STEADY = 1_000_000, 20_000, 0.1


@pytest.fixture(scope="module")
def browser():
    with chromium() as program:
        yield program


@pytest.fixture(scope="module")
def site():
    with served() as address:
        yield address


def new_tab(browser, **options):
    """A tab that tells what its page ``asked`` for and what ``trouble`` it had."""
    tab = browser.new_context(**options).new_page()
    tab.on("request", lambda request: tab.asked.append(request.url))
    tab.on("requestfailed", lambda request: tab.trouble.append(f"failed: {request.url}"))
    tab.on("response", lambda got: got.status >= 400 and tab.trouble.append(f"{got.status}: {got.url}"))
    tab.on("console", lambda said: said.type == "error" and tab.trouble.append(said.text))
    tab.on("pageerror", lambda error: tab.trouble.append(str(error)))
    return tab


FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def visit(tab, address, reduced_motion="reduce"):
    """Open a page on a wide and light screen; wait for its images, mathematics, letters and two frames.

    Where motion is unwelcome, looks change at once.
    """
    tab.asked, tab.trouble = [], []
    tab.set_viewport_size(SCREEN)
    tab.emulate_media(color_scheme="light", reduced_motion=reduced_motion)
    tab.goto(address, wait_until="load")
    tab.evaluate("window.MathJax && MathJax.startup && MathJax.startup.promise")
    tab.evaluate("document.fonts.ready.then(() => true)")
    tab.evaluate(FRAMES)


PAINTED = """async () => {
    const largest = await new Promise(done => new PerformanceObserver(list => done(list.getEntries().at(-1)))
        .observe({type: "largest-contentful-paint", buffered: true}));
    const shifts = new PerformanceObserver(() => {});
    shifts.observe({type: "layout-shift", buffered: true});
    const blocking = document.querySelectorAll("link[rel=stylesheet], script[src]:not([defer], [async])");
    return {
        blocking: [...blocking].map(file => file.href || file.src),
        elements: document.querySelectorAll("*").length,
        largestIsText: Boolean(largest.element && !largest.element.closest("img, svg, mjx-container")),
        shift: shifts.takeRecords().reduce((sum, shift) => sum + shift.value, 0),
    };
}"""


@pytest.fixture(scope="module")
def tab(browser):
    return new_tab(browser)


@pytest.fixture(scope="module", params=PAGES)
def page(request, tab, site):
    """Each page of the site, opened once for all the tests that only look."""
    visit(tab, site + request.param)
    tab.name, tab.painted = request.param, tab.evaluate(PAINTED)
    return tab


def test_every_page_is_built():
    assert sorted(f"book/{source.stem}.html" for source in SOURCES.glob("*.md")) == BOOK_PAGES
    assert BOOK_PAGES


def test_root_opens_the_book(browser, site):
    page = browser.new_page()
    page.goto(site)
    page.wait_for_url(site + "book/index.html")
    page.close()


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
    directives = r":::.*|``.*|:[a-z]+:`.*|\{[a-z][\w:-]*\}`.*|^\s*\{[a-z][\w:-]*\}.*"
    mathematics = r"\$\$.*|\$[^$\n]*[\\^_][^$\n]*\$"
    assert re.findall(f"{directives}|{mathematics}", text, re.MULTILINE) == []


def test_mathematics_is_set(page):
    source = SOURCES / Path(page.name).with_suffix(".md").name
    if page.name.startswith("book/"):
        prose = re.sub(
            r"^(`{3,}|~{3,})\{code-cell\}.*?^\1$|`[^`\n]*`", "", source.read_text(), flags=re.DOTALL | re.M
        )
        from_docstrings = source.stem.startswith("api")
        assert (page.locator("mjx-container").count() > 0) == ("$" in prose or from_docstrings)
    assert page.locator(".math:not(:has(mjx-container))").count() == 0
    assert page.locator("mjx-merror, [data-mjx-error]").count() == 0


def built(url, site):
    """The file that the site shows at an address."""
    address = urldefrag(url).url.removeprefix(site).partition("?")[0]
    return HTML / unquote(address or "index.html")


def test_internal_links_lead_somewhere(page, site):
    whole = "links => links.map(link => new URL(link.getAttribute('href'), document.baseURI).href)"
    links = page.eval_on_selector_all("a[href]", whole)  # those of a drawing have no plain href
    for link in sorted({link for link in links if link.startswith(site)}):
        target, fragment = built(link, site), urldefrag(link).fragment
        assert target.is_file(), link
        if fragment:
            assert unquote(fragment) in places(target), link


@functools.cache
def places(file):
    """What links into a file of the site can name."""
    return set(re.findall(r'\bid="([^"]*)"', file.read_text(encoding="utf-8")))


def code_cells(page):
    """The code cells of a page's twin; none where it has none."""
    twin = SOURCES / Path(page.name).with_suffix(".ipynb").name
    cells = json.loads(twin.read_text(encoding="utf-8"))["cells"] if twin.exists() else []
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_names_in_code_lead_to_the_api(page):
    links = page.eval_on_selector_all("a.api-link", "links => links.map(l => [l.textContent, l.href])")
    assert bool(links) == bool(code_cells(page))
    for name, address in links:
        entry = rf"/book/api(-workshop)?\.html#(edgewise|attention_on_edges)\.[\w.]*\.{name}$"
        assert re.search(entry, address), (name, address)


def test_a_page_that_cites_ends_with_what_it_cites(page):
    source = SOURCES / Path(page.name).with_suffix(".md").name
    keys = works_cited.keys(source.read_text(encoding="utf-8")) if source.exists() else []
    own = bool(keys) and bool(code_cells(page))  # the landing page's citations lead to the whole list
    cited = page.eval_on_selector_all(
        ".bibtex-citation a", "links => links.map(link => link.getAttribute('href'))"
    )
    if source.stem == "references":
        assert set(cited) <= {f"#{named}" for named in ids(page, "div.citation")}
        return
    assert {link.rpartition("#")[0] for link in cited} == (
        {"" if own else "references.html"} if keys else set()
    )
    assert {link.rpartition("#cite-")[2] for link in cited} == set(keys)
    assert page.locator("#works-cited").count() == own
    if own:
        assert sorted(ids(page, "#works-cited li")) == sorted(f"cite-{key}" for key in keys)
        last = page.locator("section:not(section section) > section").last
        assert last.get_attribute("id") == "works-cited"


def ids(page, selector):
    return page.eval_on_selector_all(selector, "all => all.map(one => one.id)")


def test_launch_buttons_open_the_twin(page):
    branch = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["branch"]
    owner_and_name = repository.address().removeprefix("https://github.com/")
    twin = Path(page.name).with_suffix(".ipynb")
    wanted = {
        f"https://mybinder.org/v2/gh/{owner_and_name}/{branch}?urlpath=lab/tree/{twin}",
        f"https://colab.research.google.com/github/{owner_and_name}/blob/{branch}/{twin}",
    }
    links = page.eval_on_selector_all(
        ".article-header-buttons a[href]", "links => links.map(link => link.href)"
    )
    buttons = {link for link in links if "mybinder.org" in link or "colab." in link}
    assert buttons == (wanted if (ROOT / twin).exists() else set())


def test_page_is_light(page, site):
    images = page.eval_on_selector_all("img", "images => images.map(image => image.src)")  # lazy ones too
    shared = re.compile("/_static/|/searchindex.js$")  # the theme's, the same for all pages
    own = {url for url in [*page.asked, *images] if url.startswith(site) and not shared.search(url)}
    assert sum(built(url, site).stat().st_size for url in own) <= MOST_BYTES


def test_headings_are_in_order(page):
    """One visible h1, first, and no level left out on the way down."""
    visible = "all => all.filter(h => h.checkVisibility()).map(h => Number(h.tagName[1]))"
    levels = page.eval_on_selector_all(":is(h1, h2, h3, h4, h5, h6)", visible)
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels)), levels


def test_names_of_the_package_are_links(page):
    dead = "names => names.filter(name => !name.closest('a')).map(name => name.textContent)"
    foreign = {"Any", "Callable", "Hashable", "Iterator", "Mapping", "Sequence", "Tensor", *dir(builtins)}
    assert set(page.eval_on_selector_all("code.xref.py", dead)) <= foreign


def test_contents_of_a_page_keep_to_their_column(page):
    outside = """entries => entries.filter(entry => entry.getBoundingClientRect().right
        > entry.closest(".bd-sidebar-secondary").getBoundingClientRect().right).map(e => e.textContent)"""
    assert page.eval_on_selector_all(".bd-sidebar-secondary .toc-entry a *", outside) == []


def test_figures_have_captions(page):
    """A player's caption is the sentence beneath it."""
    told = """all => all.map(image => {
        const figure = image.closest("figure, .edgewise-element");
        const caption = figure && figure.querySelector("figcaption, p");
        return [caption ? caption.textContent.replace("#", "").trim() : "", image.alt || image.ariaLabel];
    })"""
    figures = page.eval_on_selector_all(".bd-article img, .edgewise-element svg.graph", told)
    assert [alt for caption, alt in figures if len(caption) < 20] == []


def test_page_is_painted_soon_and_stays_in_place(page, site):
    """Without a clock: the first paint waits for little, and the largest for no picture or formula."""
    assert sum(built(url, site).stat().st_size for url in page.painted["blocking"]) <= MOST_BLOCKING
    assert page.painted["elements"] <= MOST_ELEMENTS
    assert page.painted["largestIsText"]
    assert page.painted["shift"] < STEADY


def test_the_books_type_is_there_at_the_first_visit(browser, site):
    """Each font is asked for once, before the style sheet names it; a later one would never be shown."""
    tab = new_tab(browser)
    visit(tab, site + "book/01-attention.html")
    told = tab.eval_on_selector_all("link[rel=preload][as=font]", "links => links.map(link => link.href)")
    declared = re.findall(r'url\("(.*?woff2)"\)', (SOURCES / "_static" / "book.css").read_text("utf-8"))
    assert sorted(told) == sorted(f"{site}_static/{font}" for font in declared)
    assert sorted(url for url in tab.asked if "_static/fonts" in url) == sorted(told)


FOLLOWED = """scheme => document.documentElement.dataset.theme === scheme
    && document.getAnimations().every(animation => animation.playState !== "running")"""


def show(page, look):
    """Show the page on a wide or narrow screen, light or dark."""
    size, scheme = LOOKS[look]
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme)
    page.evaluate(FRAMES)
    page.wait_for_function(FOLLOWED, arg=scheme)


@pytest.mark.parametrize("look", LOOKS)
def test_nothing_sticks_out(page, look):
    show(page, look)
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


# Colours take axe-core most of its time. A text has enough contrast if another has that is drawn like it,
# inside boxes that are drawn alike; a box out of the flow, which may lie over others, is like no other.
RUN_AXE = """async ([axeCore, options]) => {
    (0, eval)(axeCore);
    const rule = axe._audit.rules.find(rule => rule.id === "color-contrast"), applies = rule.matches;
    const check = axe._audit.checks["color-contrast"];
    const drawn = new Map([[null, ""]]), good = new Set();
    const howDrawn = element => {
        if (!drawn.has(element)) {
            const style = getComputedStyle(element);
            drawn.set(element, [
                howDrawn(element.parentElement), style.color, style.fontSize, style.fontWeight,
                style.textShadow, style.webkitTextFillColor, style.webkitTextStroke,
                style.backgroundColor, style.backgroundImage, style.opacity, style.mixBlendMode,
                /absolute|fixed/.test(style.position) && drawn.size,
            ].join());
        }
        return drawn.get(element);
    };
    rule.matches = (text, ...rest) => {
        if (good.has(howDrawn(text)) || !applies(text, ...rest)) return false;
        let ratio = null;
        const told = {data: measured => { ratio = measured.contrastRatio; }, relatedNodes: () => {}};
        const enough = check.evaluate.call(told, text, check.options, ...rest) && ratio !== null;
        if (enough) good.add(howDrawn(text));
        return !enough;
    };
    return (await axe.run(document, options)).violations;
}"""


# Some time after the screen has changed its size, the theme lets the keyboard reach what scrolls.
REACHED = """() => [...document.querySelectorAll("pre, .cell_output > .output")].every(box =>
    (box.tabIndex === 0) === (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight))"""


@pytest.mark.parametrize("look", ["narrow-dark", "wide-light"])
def test_nothing_bars_anybody(page, look):
    """No violation of WCAG 2.2 A or AA that axe-core finds; no rule and no element is excepted."""
    show(page, look)
    page.wait_for_function(REACHED, polling=50)
    options = {"runOnly": WCAG, "resultTypes": ["violations"], "preload": False}
    found = page.evaluate(RUN_AXE, [AXE, options])
    assert [(fault["id"], [node["target"] for node in fault["nodes"]][:5]) for fault in found] == []


def test_no_rule_of_the_theme_resizes_what_a_live_element_draws(page):
    """Bootstrap's class names, such as row, give their children a width, and rectangles take it."""
    changed = """boxes => boxes.map(box => [box.getAttribute("width"), getComputedStyle(box).width])
        .filter(([drawn, shown]) => Math.abs(parseFloat(drawn) - parseFloat(shown)) > 0.01)"""
    assert page.eval_on_selector_all(".edgewise-element svg rect[width]", changed) == []


# After all looks, so that what is asked for late counts too.
def test_page_loads_without_a_complaint(page):
    assert page.trouble == []


def test_page_asks_nothing_of_the_outside(page, site):
    assert [url for url in page.asked if not url.startswith((site, "data:", "blob:"))] == []


TRAINING = "book/07-training.html"


@pytest.fixture(scope="module")
def stage(browser):
    """A tab whose pages may use the clipboard, and whose clock the tests can put forward."""
    tab = new_tab(browser, permissions=["clipboard-read", "clipboard-write"])
    tab.name = TRAINING
    tab.clock.install()
    return tab


@pytest.fixture
def cell(stage, site):
    """A code cell with links."""
    visit(stage, site + stage.name)
    return stage.locator(".cell_input:has(a.api-link):visible").first


def test_code_is_copied_as_it_was_written(cell):
    cell.hover()
    cell.locator("button.copybtn").click()
    copied = cell.page.evaluate("navigator.clipboard.readText()")
    assert copied.rstrip() in code_cells(cell.page)


def test_linked_names_show_that_they_are_links_and_have_the_focus(cell):
    link, style = (
        cell.locator("a.api-link").first,
        "link => [getComputedStyle(link).{}, link.matches(':focus')]",
    )
    assert link.evaluate(style.format("textDecorationStyle")) == ["dotted", False]
    cell.page.keyboard.press("Tab")  # a focus is shown to those who use the keyboard
    link.focus()
    assert link.evaluate(style.format("outlineStyle")) == ["solid", True]
    assert link.evaluate("a => getComputedStyle(a).color === getComputedStyle(a.parentElement).color")


@pytest.fixture
def player(stage, site, request):
    """The first attention player of the chapter on training."""
    visit(stage, site + stage.name, getattr(request, "param", "no-preference"))
    yield stage.locator(".edgewise-element").first
    assert stage.trouble == []


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
    assert all(sender <= receiver for sender, receiver in pairs), "no token attends to a later one"
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
    player.page.clock.run_for(10_000)
    assert player.get_by_role("button", name="Play").count() == 1
    assert slider.input_value() == slider.get_attribute("max")


@pytest.mark.parametrize("player", ["reduce"], indirect=True)
def test_player_moves_only_when_told_where_motion_is_unwelcome(player):
    player.get_by_role("button", name="Next").click()
    assert player.locator("output").inner_text() == "step 0"
    player.page.clock.run_for(10_000)
    assert player.locator("output").inner_text() == "step 0"


def test_players_of_a_page_go_their_own_ways(player):
    other = player.page.locator(".edgewise-element").nth(1)
    before = other.locator("output").inner_text()
    player.get_by_role("slider").press("Home")
    assert other.locator("output").inner_text() == before
    strengths = "lines => lines.map(line => line.getAttribute('stroke-opacity'))"
    first = other.locator("line.edge").evaluate_all(strengths)
    other.get_by_label("Head", exact=True).select_option("head 1")
    assert other.locator("line.edge").evaluate_all(strengths) != first


def test_player_is_a_described_picture_without_a_script(browser, site):
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(site + TRAINING)
    player = page.locator(".edgewise-element").first
    picture = player.locator("img")
    assert "source to target" in picture.get_attribute("alt")
    assert picture.evaluate("image => image.naturalWidth") > 200
    assert player.locator("button").count() == 0
    page.context.close()
