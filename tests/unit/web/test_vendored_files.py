"""The page's libraries are those of the lock, each with its licence, and nothing of the page is fetched elsewhere."""

from __future__ import annotations

import re

from hajob.web.responses import content_policy, read_static_files
from release import vendored


def test_each_file_is_that_of_its_package() -> None:
    assert vendored.differences() == []


def test_each_package_brings_its_licence() -> None:
    lock = vendored.read_lock()
    assert all(f"LICENSE.{name}" in package["files"] for name, package in lock.items())
    assert {package["license"] for package in lock.values()} <= {"MIT", "Apache-2.0"}


def test_the_page_asks_nobody_else() -> None:
    own = {name: content for name, content in read_static_files().items() if not name.startswith("vendor/")}
    addresses = {
        found
        for name, content in own.items()
        for found in re.findall(rb"""["'(]((?:https?:)?//[^"')\s]+)""", content)
        if not (name == "icon.svg" and b"w3.org" in found)
    }
    assert addresses == set()


def test_the_policy_allows_own_files_only() -> None:
    policy = content_policy(read_static_files()["index.html"])
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy.count("sha256-") == 1, "the import map"


def test_nothing_writes_markup() -> None:
    own = b"".join(
        content for name, content in read_static_files().items() if name.endswith(".mjs") and "vendor/" not in name
    )
    for word in (
        b"innerHTML",
        b"outerHTML",
        b"dangerouslySetInnerHTML",
        b"insertAdjacentHTML",
        b"eval(",
        b"document.write",
    ):
        assert word not in own
