"""The built book in Chromium: what its tests and its screenshots share.

``make screenshots`` runs this file: every page, wide and narrow, light and dark, as pictures for people to
look at, in ``_build/screenshots``.
"""

import functools
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from paths import ROOT

HTML = ROOT / "_build" / "html"
PAGES = [f"book/{page.name}" for page in sorted(HTML.glob("book/*.html"))]
SCREEN = {"width": 1280, "height": 720}
PHONE = {"width": 390, "height": 844}
LOOKS = {
    f"{width}-{scheme}": (size, scheme)
    for width, size in (("wide", SCREEN), ("narrow", PHONE))
    for scheme in ("light", "dark")
}
TALLEST = 8000  # of a picture, in pixels: longer pages become several
# A browser looks for updates and the like on its own: not while it counts the page's requests.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no network but this machine's own
]


def program() -> str:
    """The browser that ``BROWSER`` names, or the first one found; the program ends where there is none."""
    found = subprocess.run([ROOT / ".ci" / "install", "browser"], capture_output=True, text=True)
    return found.stdout.strip() or sys.exit(found.stderr.strip())


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium, started and stopped."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=QUIET)
        yield browser
        browser.close()


@contextmanager
def served() -> Iterator[str]:
    """Serve the built book; the address."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Silent, directory=HTML)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def photograph(browser: Browser, address: str, size: dict, scheme: str, stem: Path) -> None:
    """Write a whole page as one picture, or as several beneath each other."""
    page = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce").new_page()
    page.goto(address, wait_until="networkidle")
    page.evaluate("window.MathJax && MathJax.startup && MathJax.startup.promise")
    height = page.evaluate("document.documentElement.scrollHeight")
    for number, top in enumerate(range(0, height, TALLEST), 1):
        clip = {"x": 0, "y": top, "width": size["width"], "height": min(TALLEST, height - top)}
        page.screenshot(path=f"{stem}-{number}.png", clip=clip, full_page=True)
    page.context.close()


def main(names: list[str]) -> None:
    """Photograph all pages, or those whose names hold one of ``names``."""
    folder = ROOT / "_build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    with chromium() as browser, served() as site:
        for page in PAGES:
            if names and not any(name in page for name in names):
                continue
            for look, (size, scheme) in LOOKS.items():
                photograph(browser, site + page, size, scheme, folder / f"{Path(page).stem}-{look}")
    print(f"pictures of the pages are in {folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
