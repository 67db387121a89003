"""The commands of docs/admin/install.md fit together: what one puts somewhere, the next one finds there."""

from __future__ import annotations

import re

from e2e.bootstrap.paths import CHECKOUT
from hajob.app.settings import Settings
from hajob.pki.authority_store import SECRET_NAME
from hajob.version import VERSION
from release.image import NAME

PAGE = (CHECKOUT / "docs/admin/install.md").read_text(encoding="utf-8")


def test_the_image_is_asked_for_where_it_was_put() -> None:
    put = {each.rpartition(":")[0] for each in re.findall(r"docker://(\S+)", PAGE)}
    asked = set(re.findall(r"image\.repository=([\w/]+)", PAGE))
    assert put == asked
    assert asked == {f"REGISTRY/{NAME.removeprefix('docker.io/').rpartition(':')[0]}"}


def test_the_image_that_is_pinned_is_the_one_imported() -> None:
    assert re.findall(r"images label (\S+)", PAGE) == [NAME]


def test_names_are_of_this_version() -> None:
    assert set(re.findall(r"\bhajob-(\d+\.\d+\.\d+)", PAGE)) == {VERSION}


def test_what_removing_leaves_is_named() -> None:
    removal = PAGE.partition("\n## Remove\n")[2].partition("\n## ")[0]
    assert f"Secret `{SECRET_NAME}`" in removal
    assert f"Lease `{Settings().lease_name}`" in removal
