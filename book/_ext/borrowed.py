"""A Sphinx extension: ``{picture} PAGE FIGURE`` shows a figure of another page, with a caption of its own.

The picture is the one that the other page's cell has drawn, not a copy that could differ. A page or figure
that does not exist, or a missing caption, is an error.
"""

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective


class Borrowed(nodes.General, nodes.Element):
    """A place for a figure of another page; its children are the caption's."""


class Picture(SphinxDirective):
    """``{picture} PAGE FIGURE``, with the caption as content."""

    required_arguments = 2
    has_content = True

    def run(self):
        """Remember what is wanted; the other page may not have been read yet."""
        self.assert_has_content()
        page, figure = self.arguments
        place = Borrowed(page=f"book/{page}", figure=figure)
        self.set_source_info(place)
        self.state.nested_parse(self.content, self.content_offset, place)
        return [place]


class Borrow(SphinxPostTransform):
    """Put in the figures, before myst-nb chooses among an output's formats."""

    default_priority = 2

    def run(self, **options):
        """Replace each place by the figure that it names."""
        for place in list(self.document.findall(Borrowed)):
            page, name = place["page"], place["figure"]
            if page not in self.env.found_docs:
                raise self.error(f"{{picture}}: there is no page {page}", place)
            found = self.env.get_doctree(page).findall(nodes.figure)
            figure = next((f for f in found if name in f.get("names", []) + f.get("ids", [])), None)
            if figure is None:
                raise self.error(f"{{picture}}: {page} has no figure {name}", place)
            shown = figure.deepcopy()
            shown["ids"], shown["names"] = [f"shown-{name}"], []  # not the original's, hence no number
            for old in list(shown.findall(nodes.caption)) + list(shown.findall(nodes.legend)):
                old.parent.remove(old)
            caption = nodes.caption("", "", *(child for text in place.children for child in text.children))
            place.replace_self(shown)
            shown.append(caption)

    @staticmethod
    def error(message, place):
        """Return an error that names the page and line."""
        return ValueError(f"{place.source}:{place.line}: {message}")


def setup(app):
    """Register the directive and what resolves it."""
    app.add_node(Borrowed)
    app.add_directive("picture", Picture)
    app.add_post_transform(Borrow)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
