"""What MkDocs is told of the pages: the navigation, and what becomes of links that work on disk only."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.plugins import event_priority

_LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)")
_BEFORE_TRANSLATION: Final = 100
"""The plugin for languages takes the navigation as it finds it, so it must be there first."""


@event_priority(_BEFORE_TRANSLATION)  # type: ignore[untyped-decorator]  # MkDocs has no types
def on_config(config: Any) -> Any:  # noqa: ANN401  MkDocs has no types
    """Make the navigation of docs/README.md: a section for each heading, its pages in the order of their links."""
    text = (Path(config.docs_dir) / "README.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    config.nav = [{"Overview": "README.md"}, *({each.partition("\n")[0]: _pages_of(each)} for each in sections)]
    return config


def _pages_of(section: str) -> list[str]:
    targets = (target.partition("#")[0] for _, target in _LINK.findall(section))
    return list(dict.fromkeys(each for each in targets if each.endswith(".md") and not each.startswith("..")))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401  MkDocs has no types
    """Return a page with links as the site has them.

    What lies outside of docs is named, not linked. A link to the Chinese page is one to the page: the site shows it in
    the reader's language.
    """
    directory = posixpath.dirname(page.file.src_uri)

    def link_of_site(found: re.Match[str]) -> str:
        words, target = found.groups()
        if re.match(r"[a-z]+:", target):
            return found[0]
        if not posixpath.normpath(posixpath.join(directory, target.partition("#")[0])).startswith(".."):
            return f"[{words}]({target.replace('.zh.md', '.md')})"
        return words if "`" in words or "/" in words else f"{words} (`{target.lstrip('./')}`)"

    return _LINK.sub(link_of_site, markdown)
