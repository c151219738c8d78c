"""Makes a fork's committed files name the fork, and says how GitHub shows its pages.

    python book/_ext/publish.py

The address is that of the git remote ``origin``. Run again, it changes nothing; it asks no network.
"""

import re
import subprocess
import sys
from pathlib import Path

from contents import ROOT
from repository import configured, of_origin

# The last of them says which address the others are to be searched for, should a run be interrupted.
FILES = ("README.md", "CITATION.cff", "pyproject.toml", "_config.yml")
HOSTS = r"github\.com|mybinder\.org/v2/gh|colab\.research\.google\.com/github|codespaces\.new"
NO_REMOTE = """\
There is no git remote "origin" on GitHub: make a repository there, name it here with
    git remote add origin https://github.com/YOUR-NAME/YOUR-BOOK
and run make publish again."""
STEPS = """\
The repository is {address}. What is left to do, once:
1. Settings > Pages > Source: GitHub Actions. In a fork also: Actions > enable workflows.
2. git commit --all --message "Name this repository"; git push origin HEAD:main
The workflow "book" then tests, builds and publishes the pages at {site}
(another address, such as your own domain: set html: baseurl in _config.yml)."""


def site_of(address):
    """Return where GitHub Pages shows a repository."""
    owner, name = address.split("/")[-2:]
    host = f"{owner}.github.io".lower()
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def renamed(text, old, new):
    """Return a file's text with the links to ``old``, and the folder of its clone, made those of ``new``."""
    before, after = ("/".join(url.split("/")[-2:]) for url in (old, new))
    text = re.sub(rf"({HOSTS})/{re.escape(before)}(?![\w-])", rf"\1/{after}", text)
    return text.replace(f"\ncd {before.split('/')[1]}\n", f"\ncd {after.split('/')[1]}\n")


def main():
    """Rewrite the files, then the chapters' set-up cells and twins, and say what is left to do."""
    new, old = of_origin(), configured()
    if new is None:
        sys.exit(NO_REMOTE)
    for name in FILES:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        changed = renamed(text, old, new)
        # A site's address that is set and is this repository's may be another than GitHub's.
        baseurl = r"^  (# )?baseurl: \S+" if old != new else r"^  # baseurl: \S+"
        changed = re.sub(baseurl, f"  baseurl: {site_of(new)}", changed, flags=re.MULTILINE)
        if changed != text:
            path.write_text(changed, encoding="utf-8")
            print(f"wrote {name}", flush=True)  # before what twins.py prints
    subprocess.run([sys.executable, Path(__file__).with_name("twins.py")], check=True)
    print(STEPS.format(address=new, site=site_of(new)))


if __name__ == "__main__":
    main()
