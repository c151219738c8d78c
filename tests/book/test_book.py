"""The built book in a browser: whole, light, open to everybody, and asking nothing of the outside."""

import functools
import itertools
import re
import zipfile
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import pytest
import yaml

import site_files
from browser import HTML, LOOKS, PAGES, PHONE, SCREEN, served
from paths import BOOK, ROOT

# A page with its images and data; the files that all pages share, the theme's and MathJax's, apart.
MOST_BYTES = 1_000_000
# The rules of WCAG 2.2, levels A and AA, as axe-core knows them.
AXE = (Path(find_spec("axe_playwright_python").origin).parent / "axe.min.js").read_text(encoding="utf-8")
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# Some time after the screen has changed its size, the theme lets the keyboard reach what scrolls.
REACHED = """() => [...document.querySelectorAll("pre, .cell_output > .output")].every(box =>
    (box.tabIndex === 0) === (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight))"""
ALL = [*PAGES, "genindex.html", "search.html"]
FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def site():
    with served() as address:
        yield address


def visit(browser, address, **options):
    """Open a page on a wide and light screen; it tells what it ``asked`` for and what ``trouble`` it had."""
    tab = browser.new_context(**{"viewport": SCREEN, "reduced_motion": "reduce"} | options).new_page()
    tab.asked, tab.trouble = [], []
    tab.on("request", lambda request: tab.asked.append(request.url))
    tab.on("requestfailed", lambda request: tab.trouble.append(f"failed: {request.url}"))
    tab.on("response", lambda got: got.status >= 400 and tab.trouble.append(f"{got.status}: {got.url}"))
    tab.on("console", lambda said: said.type == "error" and tab.trouble.append(said.text))
    tab.on("pageerror", lambda error: tab.trouble.append(str(error)))
    tab.goto(address, wait_until="load")
    tab.evaluate("window.MathJax && MathJax.startup && MathJax.startup.promise")
    tab.evaluate("document.fonts.ready.then(() => true)")
    tab.evaluate(FRAMES)
    return tab


@pytest.fixture(scope="module", params=ALL)
def page(request, browser, site):
    tab = visit(browser, site + request.param)
    tab.name = request.param
    yield tab
    tab.context.close()


def test_every_page_is_built(browser, site):
    assert sorted(f"book/{source.stem}.html" for source in BOOK.glob("*.md")) == PAGES
    root = browser.new_page()
    root.goto(site)
    root.wait_for_url(site + "book/index.html")
    address = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["sphinx"]["config"]["ogp_site_url"]
    assert f'href="{urlparse(address).path}_static/' in (HTML / "404.html").read_text("utf-8")


def test_headings_are_in_order(page):
    """One visible h1, first, and no level left out on the way down."""
    visible = "all => all.filter(h => h.checkVisibility()).map(h => Number(h.tagName[1]))"
    levels = page.eval_on_selector_all(":is(h1, h2, h3, h4, h5, h6)", visible)
    assert levels[0] == 1
    assert levels.count(1) == page.locator("h1").count() == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels)), levels


def test_images_have_alternative_text_and_captions(page):
    """A live element's is the sentence beneath it; myst-nb gives a file's name where a cell has no text."""
    told = """all => all.map(image => {
        const figure = image.closest("figure, .edgewise-element");
        const caption = figure && figure.querySelector("figcaption, p");
        const said = caption ? caption.textContent.replace("#", "").trim() : "";
        return [image.alt || image.ariaLabel || "", said];
    })"""
    for alt, caption in page.eval_on_selector_all(
        ".bd-article :is(img, svg.figure), .edgewise-element svg.graph", told
    ):
        assert alt.strip(), caption
        assert not re.search(r"[0-9a-f]{16}", alt), alt
        assert len(caption) >= 20, alt


def test_no_raw_markup_and_no_warning_is_left(page):
    """Directives, roles and formulas that nothing has read stay in the text as they are."""
    assert page.locator(".output.stderr").count() == 0
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
    assert page.locator(".math:not(:has(mjx-container)), mjx-merror, [data-mjx-error]").count() == 0


def test_layers_and_heads_are_counted_from_one(page):
    """In text, pictures, what printed code says, and alternative texts; code itself counts from zero."""
    said = page.evaluate(
        """() => {
            const body = document.body.cloneNode(true);
            body.querySelectorAll(".cell_input, .highlight-python, style").forEach(part => part.remove());
            const told = [...body.querySelectorAll("[alt], [aria-label]")];
            return [body.textContent, ...told.map(node => node.alt ?? node.ariaLabel)].join("\\n");
        }"""
    )
    assert re.findall(r"\b(?:heads?|layers?) 0(?!\.).*", said, re.IGNORECASE) == []


def built(url, site):
    """The file that the site shows at an address."""
    address = urldefrag(url).url.removeprefix(site).partition("?")[0]
    return HTML / unquote(address or "index.html")


@functools.cache
def anchors(file):
    """What links into a file of the site can name."""
    return set(re.findall(r'\bid="([^"]*)"', file.read_text(encoding="utf-8")))


def test_internal_links_lead_somewhere(page, site):
    whole = "links => links.map(link => new URL(link.getAttribute('href'), document.baseURI).href)"
    links = page.eval_on_selector_all("a[href]", whole)
    for link in sorted({link for link in links if link.startswith(site)}):
        target, fragment = built(link, site), urldefrag(link).fragment
        assert target.is_file(), link
        if fragment.startswith("live?"):  # a state of the translator
            assert "edgewise-front" in target.read_text(encoding="utf-8"), link
        else:
            assert not fragment or unquote(fragment) in anchors(target), link


def test_buttons_open_the_twin_and_edit_the_page(page):
    repository = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]
    url, branch = repository["url"], repository["branch"]
    name, twin = url.removeprefix("https://github.com/"), Path(page.name).with_suffix(".ipynb")
    links = page.eval_on_selector_all(
        ".article-header-buttons a[href]", "links => links.map(link => link.href)"
    )
    found = {link for link in links if re.search(r"mybinder\.org|colab\.|/edit/", link)}
    wanted = {f"{url}/edit/{branch}/{twin.with_suffix('.md')}"} if page.name in PAGES else set()
    if (ROOT / twin).exists():
        wanted |= {
            f"https://mybinder.org/v2/gh/{name}/{branch}?urlpath=lab/tree/{twin}",
            f"https://colab.research.google.com/github/{name}/blob/{branch}/{twin}",
        }
        assert any(link.endswith(f"_sources/{twin}") for link in links)
    assert found == wanted


def test_page_is_light(page, site):
    images = page.eval_on_selector_all("img", "images => images.map(image => image.src)")  # lazy ones too
    shared = re.compile("/_static/|/searchindex.js$")  # the theme's, the same for all pages
    own = {url for url in [*page.asked, *images] if url.startswith(site) and not shared.search(url)}
    assert sum(built(url, site).stat().st_size for url in own) <= MOST_BYTES


# Visible texts, one of each colour, size and background: all of them would take half of the tests' time.
KINDS = """() => {
    const kinds = new Map(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const text = walk.currentNode.parentElement, style = getComputedStyle(text);
        if (!walk.currentNode.data.trim() || !text.checkVisibility()) continue;
        const kind = [style.color, style.fill, style.fontSize, style.fontWeight];
        for (let box = text; box; box = box.parentElement) {
            const { backgroundColor, backgroundImage, opacity } = getComputedStyle(box);
            const own = [backgroundColor, backgroundImage, opacity].join();
            if (own !== "rgba(0, 0, 0, 0),none,1") kind.push(own);
        }
        kinds.set(kind.join(), text);
    }
    return [...kinds.values()];
}"""


def violations(tab):
    """What axe-core finds of WCAG 2.2 A and AA."""
    tab.evaluate("axe => { (0, eval)(axe); }", AXE)
    rest = {"runOnly": WCAG, "rules": {"color-contrast": {"enabled": False}}}
    found = tab.evaluate(
        f"""async rest => {{
            const common = {{ resultTypes: ["violations"], preload: false }};
            const run = async (where, options) =>
                (await axe.run(where, {{ ...common, ...options }})).violations;
            const contrast = await run({{ include: ({KINDS})() }}, {{ runOnly: ["color-contrast"] }});
            return [...contrast, ...await run(document, rest)];
        }}""",
        rest,
    )
    return [(fault["id"], [node["target"] for node in fault["nodes"]][:5]) for fault in found]


@pytest.mark.parametrize("size", [PHONE, SCREEN])
def test_letters_in_figures_are_legible(page, size):
    """In pixels; on a narrow screen a figure scrolls in its frame, and its page does not."""
    page.set_viewport_size(size)
    page.evaluate(FRAMES)
    sizes = page.eval_on_selector_all(
        "svg.figure text, svg.figure tspan",
        """all => all.filter(text => text.textContent.trim()).map(text => {
            const { a, b } = text.closest("text").getScreenCTM();
            return Math.hypot(a, b) * parseFloat(getComputedStyle(text).fontSize);
        })""",
    )
    assert min(sizes, default=11) > 10.9


# Colours of letters in figures too near to the page's; white and black stand on a ground of their own.
FAINT = """() => {
    const channels = color => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const light = color => channels(color).map(c => c / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0.05);
    const page = light(getComputedStyle(document.body).backgroundColor);
    const colors = [...document.querySelectorAll("svg.figure text")].map(text => getComputedStyle(text).fill);
    return [...new Set(colors)].filter(color => !/^rgb\\((0, 0, 0|255, 255, 255)\\)$/.test(color))
        .filter(color => Math.max(light(color), page) / Math.min(light(color), page) < 4.5);
}"""


@pytest.mark.parametrize("look", ["one", *(pytest.param(x, marks=pytest.mark.nightly) for x in LOOKS)])
def test_page_is_open_to_everybody(page, look):
    """In one look, every second page wide and light, the others narrow and dark; in all by night.

    Nothing sticks out; axe-core finds no violation of WCAG 2.2 A or AA.
    """
    looks = ("wide-light", "narrow-dark")
    size, scheme = LOOKS[looks[ALL.index(page.name) % 2] if look == "one" else look]
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme)
    page.evaluate(FRAMES)
    page.wait_for_function("scheme => document.documentElement.dataset.theme === scheme", arg=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert page.evaluate(FAINT) == []
    page.wait_for_function(REACHED, polling=50)
    assert violations(page) == []


@pytest.mark.parametrize("look", ["wide-light", "narrow-dark"])
def test_the_first_screen_cuts_and_answers(browser, site, look):
    """Field, picture and answer are in view at the same time; all states are open to everybody."""
    size, scheme = LOOKS[look]
    tab = visit(browser, site + "book/index.html", viewport=size, color_scheme=scheme)
    assert sum(built(url, site).stat().st_size for url in tab.asked if url.startswith(site)) <= 1_000_000
    controls = ".edgewise-front :is(button, a, input, select, summary)"
    assert sum(one.is_visible() for one in tab.locator(controls).all()) <= 12
    tab.locator(".chips button").first.click()
    boxes = [tab.locator(f".edgewise-front {part}").bounding_box() for part in ("form", "svg", ".answer")]
    assert all(box["y"] >= 0 and box["y"] + box["height"] <= size["height"] for box in boxes)
    field, picture, answer = ((box["x"], box["y"]) for box in boxes)
    assert field[1] < picture[1]
    assert answer[0] > picture[0] or answer[1] >= picture[1] + boxes[1]["height"]
    assert violations(tab) == []
    tab.locator(".chips button:nth-child(4)").click()
    tab.get_by_text("With these edges alone").wait_for()
    tab.locator(".edgewise-front summary").click()
    tab.wait_for_selector(".edgewise-front select >> visible=true")
    assert violations(tab) == []
    assert tab.trouble == []
    tab.context.close()


DENIED = """for (const name of ["localStorage", "sessionStorage"])
    Object.defineProperty(window, name, { configurable: true, get() { throw new DOMException(); } });"""


def test_page_loads_without_a_complaint_and_asks_nothing_of_the_outside(page, site):
    """After all looks, so that what is asked for late counts too."""
    assert page.trouble == []
    assert [url for url in page.asked if "webfonts" in url] == []  # of the theme: ours lack an icon
    assert [url for url in page.asked if not url.startswith((site, "data:", "blob:"))] == []


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zip")
    with zipfile.ZipFile(HTML / site_files.ZIP) as packed:
        packed.extractall(folder)
    return folder / "attention-on-edges"


@pytest.mark.parametrize("name", ["index", "01-attention"])
def test_zip_shows_everything_from_the_disk_without_a_network(browser, unpacked, name):
    page = visit(browser, (unpacked / "book" / f"{name}.html").as_uri(), offline=True)
    assert page.trouble == []
    assert [url for url in page.asked if "webfonts" in url] == []  # of the theme: ours lack an icon
    assert [url for url in page.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.locator(".math:not(:has(mjx-container))").count() == 0
    for element in page.locator(".edgewise-element").all():
        element.scroll_into_view_if_needed()  # the language model's is loaded then
        element.locator(".panels").wait_for()
    assert page.evaluate("document.fonts.check('16px \"Source Serif 4\"')")
    page.context.close()


SEARCHES = {
    "halting": "11-", "BLEU": "08-", "GAT": "03-", "positional encoding": "02-", "window": "04-|10-",
    "KV cache": "08-", "beam search": "08-", "label smoothing": "07-",
    "over-smoothing": "0[23]-",
}  # fmt: skip
"""Which chapter must be the first hit's."""


def hits(browser, address, searches, storage=""):
    """Search for each of some words; the links found, in order."""
    tab = browser.new_page()
    trouble, found = [], {}
    tab.on("pageerror", lambda error: trouble.append(str(error)))
    tab.add_init_script(storage)
    for words in searches:
        tab.goto(f"{address}search.html?q={words}")
        tab.wait_for_function("Search.status && Search.status.textContent")
        links = tab.locator("#search-results li > a")
        found[words] = links.evaluate_all("all => all.map(a => a.getAttribute('href'))")
    tab.close()
    assert trouble == []
    return found


@pytest.mark.parametrize(("where", "searches"), [("served", SEARCHES), ("zip", {"halting": "11-"})])
def test_searches_find_the_right_section_first(browser, site, unpacked, where, searches):
    """Served, where the browser denies its storage, and from the disk."""
    address = f"{unpacked.as_uri()}/" if where == "zip" else site
    first = {
        words: next(iter(found), "") for words, found in hits(browser, address, searches, DENIED).items()
    }
    right = {words for words, link in first.items() if re.match(f"book/({searches[words]})", link)}
    assert len(right) >= 0.8 * len(searches), first
    assert all(
        urldefrag(link).fragment in anchors(HTML / urldefrag(link).url) for link in first.values() if link
    )


def test_a_guess_can_be_made_and_the_story_looks_back_at_it(page):
    answers = page.locator("blockquote li button")
    assert (answers.count() > 1) == page.name.removeprefix("book/")[:2].isdigit()
    for answer in answers.all():
        answer.click()
        assert page.locator("#your-guess > .guessed").inner_text() == f"You guessed: {answer.inner_text()}."
        assert page.locator("blockquote [aria-pressed=true]").count() == 1
