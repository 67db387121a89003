"""The catalogue of the Chinese translations of what the plugin says, kept in step with the source.

Babel merges and writes what is extracted: translations stay, what is new stands there with an empty `msgstr`, what has
gone is left out. Run as `python -m release.generate.catalogue [--check]`.
"""

from __future__ import annotations

import io
import sys
from typing import Final

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from release.generate.files import ROOT, write_or_check
from release.generate.sentences import sentences

PAGE: Final = "operator/hajob/cli/locale/zh.po"
_HEAD: Final = """\
# Chinese translations of what `kubectl hajob` says.
# Extracted by `python -m release.generate.catalogue`; translate what has an empty msgstr. Where nothing is to be
# translated, such as a command, msgstr repeats msgid."""


def merged_catalogue(source: str) -> Catalog:
    """Return the catalogue of the sentences of today, with the translations that a source has."""
    old = read_po(io.StringIO(source), locale="zh")
    made = Catalog(locale="zh", header_comment=_HEAD, fuzzy=False, charset="utf-8")
    for sentence, places in sentences().items():
        known = old.get(sentence)
        modules = dict.fromkeys(path for path, _ in places)
        made.add(sentence, known.string if known is not None else "", locations=[(path, 0) for path in modules])
    return made


def rendered(catalogue: Catalog) -> str:
    """Return the text of the catalogue's file; without dates and numbers of lines, which change with every edit."""
    written = io.BytesIO()
    write_po(written, catalogue, width=0, omit_header=True, sort_output=True, include_lineno=False)
    header = 'msgid ""\nmsgstr ""\n"Language: zh\\n"\n"Content-Type: text/plain; charset=utf-8\\n"\n\n'
    return f"{_HEAD}\n{header}{written.getvalue().decode().rstrip()}\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the catalogue, or say whether it is current."""
    path = ROOT / PAGE
    source = path.read_text(encoding="utf-8") if path.is_file() else ""
    return write_or_check("release.generate.catalogue", {PAGE: rendered(merged_catalogue(source))}, arguments)


if __name__ == "__main__":
    sys.exit(main())
