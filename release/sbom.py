"""What is in an image, with licences, as CycloneDX reads and writes it (its own library, from `sbom.lock`)."""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Final

from e2e.bootstrap.environment import install_into
from hajob.version import VERSION
from release import debian, vendored
from release.platforms import Platform
from release.tree import Tree

LOCK: Final = Path(__file__).with_name("sbom.lock")


@dataclass(frozen=True, slots=True)
class Component:
    """One package of an image: its purl type is `pypi`, `deb` or `npm`."""

    kind: str
    name: str
    version: str
    licenses: tuple[str, ...]
    architecture: str = ""


def components(tree: Tree, platform: Platform) -> list[Component]:
    """The packages of an image, each kind by what says it.

    Python's by what is installed with them, Debian's by the lock and their copyright, the page's libraries by the lock
    beside them.
    """
    found = [*_python(tree), *_debian(tree, platform), *_of_page(tree)]
    return sorted(found, key=lambda each: (each.kind, each.name))


def _python(tree: Tree) -> Iterator[Component]:
    for path, entry in tree.items():
        if path.endswith(".dist-info/METADATA"):
            told = message_from_bytes(entry.content)
            yield Component("pypi", str(told["Name"]), str(told["Version"]), _told_licenses(told))


def _told_licenses(told: Message) -> tuple[str, ...]:
    """The expression, else the classifiers, else the first line of the old field."""
    if expression := told.get("License-Expression"):
        return (str(expression),)
    classifiers = [str(each) for each in told.get_all("Classifier", []) if str(each).startswith("License ::")]
    if named := tuple(each.rsplit(" :: ", 1)[-1] for each in classifiers):
        return named
    return tuple(str(told.get("License") or "unknown").strip().splitlines()[:1])


def _debian(tree: Tree, platform: Platform) -> Iterator[Component]:
    for package in debian.locked(platform):
        copyright_file = tree.get(f"usr/share/doc/{package.name}/copyright")
        text = copyright_file.content.decode(errors="replace") if copyright_file else ""
        named = sorted(set(re.findall(r"(?m)^License: *(\S.*)$", text))) or ["see its copyright file"]
        yield Component("deb", package.name, package.version, tuple(named), platform.debian)


def _of_page(tree: Tree) -> Iterator[Component]:
    for path, entry in tree.items():
        if path.endswith(f"/static/vendor/{vendored.LOCK}"):
            for name, package in json.loads(entry.content).items():
                yield Component("npm", name, str(package["version"]), (str(package["license"]),))


def table(listed: list[Component]) -> str:
    """Names, versions and licences for people."""
    return "".join(f"{each.name} {each.version}: {', '.join(each.licenses)}\n" for each in listed)


def document(listed: list[Component], platform: Platform, tools: Path) -> str:
    """The bill of materials as CycloneDX JSON; the same image gives the same text.

    Args:
        listed: the packages.
        platform: of the image.
        tools: directory where CycloneDX' library is installed, if it is not yet.
    """
    if not (tools / "cyclonedx").is_dir():
        install_into(tools, LOCK, "installing CycloneDX")
    sys.path.append(str(tools))
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component as Part
    from cyclonedx.model.component import ComponentType
    from cyclonedx.model.license import DisjunctiveLicense
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    def part(each: Component) -> Part:
        space = "debian" if each.kind == "deb" else None
        qualifiers = {"arch": each.architecture} if each.architecture else None
        purl = PackageURL(each.kind, space, each.name, each.version, qualifiers)
        licenses = [DisjunctiveLicense(name=name) for name in each.licenses]
        kind = ComponentType.LIBRARY
        return Part(name=each.name, version=each.version, type=kind, purl=purl, bom_ref=str(purl), licenses=licenses)

    bom = Bom(components=[part(each) for each in listed])
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"hajob {VERSION} {platform.name} {table(listed)}")
    bom.metadata.timestamp = datetime.fromtimestamp(0, UTC)
    bom.metadata.component = Part(name="hajob", version=VERSION, type=ComponentType.CONTAINER, bom_ref="hajob")
    return str(JsonV1Dot6(bom).output_as_string(indent=1)) + "\n"
