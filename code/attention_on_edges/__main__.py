"""The command ``edgewise``, where it has what it needs."""

import sys


def main() -> None:
    """Run the command line, or name the extra that it lacks."""
    try:
        from attention_on_edges.commands.app import app
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in ("", "edgewise", "attention_on_edges"):
            raise
        sys.exit(f"error: edgewise needs {package}: pip install 'edgewise[chapters]'")
    app()


if __name__ == "__main__":
    main()
