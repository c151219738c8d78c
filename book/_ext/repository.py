"""A Sphinx extension: the pages of a fork lead to the fork.

The repository's address is that of the git remote ``origin`` if it is on GitHub, else the one that
``_config.yml`` names. Committed files name the latter; ``publish.py`` makes both the same.
"""

import re
import subprocess

import yaml

from contents import ROOT

CONFIG = ROOT / "_config.yml"
# Such as https://github.com/OWNER/NAME.git, git@github.com:OWNER/NAME or ssh://git@github.com/OWNER/NAME.
GITHUB = re.compile(
    r"(?:\w+://)?(?:[^@/]+@)?(?:ssh\.|www\.)?github\.com(?::\d+)?[:/]([\w-]+)/([\w.-]+?)(?:\.git)?/?"
)


def on_github(remote):
    """Return the address of a remote's page on GitHub; None if the remote is elsewhere."""
    found = GITHUB.fullmatch(remote)
    return f"https://github.com/{found[1]}/{found[2]}" if found else None


def of_origin():
    """Return the address of the remote ``origin``; None without one on GitHub."""
    if not (ROOT / ".git").exists():  # a copy that lies in the clone of something else
        return None
    try:
        command = ["git", "-C", ROOT, "remote", "get-url", "origin"]
        return on_github(subprocess.run(command, capture_output=True, text=True).stdout.strip())
    except FileNotFoundError:  # a machine without git
        return None


def configured():
    """Return the address that the committed files name."""
    return yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["repository"]["url"]


def address():
    """Return the repository's address, without a slash at its end."""
    return of_origin() or configured()


def lead_there(app, config):
    """Let the buttons of all pages lead to the repository's address."""
    config.html_theme_options["repository_url"] = address()


def setup(app):
    """Run before the theme reads its options."""
    app.connect("config-inited", lead_there)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
