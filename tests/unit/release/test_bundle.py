import gzip
import hashlib
import io
import re
import tarfile
from posixpath import dirname, join, normpath

from hajob.version import VERSION
from release import bundle, sbom, vendored
from release.platforms import PLATFORMS
from release.tree import Entry, from_tar
from release.wheels import SITE


def files(content: bytes) -> dict[str, Entry]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return from_tar(archive)


def test_the_checksums_name_every_file() -> None:
    found = files(bundle.archive({"images/a.tar": Entry(b"a"), "install.md": Entry(b"b")}))
    top = f"hajob-{VERSION}"
    sums = found[f"{top}/{bundle.SUMS}"].content.decode()
    assert sums == "".join(
        f"{hashlib.sha256(content).hexdigest()}  {path}\n"
        for path, content in (("images/a.tar", b"a"), ("install.md", b"b"))
    )


def test_the_chart_is_packed_as_helm_does() -> None:
    found = files(gzip.decompress(bundle.chart()))
    assert {"hajob/Chart.yaml", "hajob/values.yaml", "hajob/templates/operator.yaml"} <= found.keys()
    assert bundle.chart() == bundle.chart()


def test_its_pages_link_only_to_pages_that_are_in_it() -> None:
    pages = bundle.pages()
    assert "docs/admin/install.md" in pages
    links = {
        (path, normpath(join(dirname(path), link.partition("#")[0])))
        for path, page in pages.items()
        for link in re.findall(r"\]\((?!https?:|#)([^)\s]+)\)", page.content.decode())
    }
    assert {target for _, target in links} >= {"docs/admin/admin.md", "docs/admin/chart.md", "docs/admin/operations.md"}
    assert [link for link in sorted(links) if link[1].startswith("docs/") and link[1] not in pages] == []


def metadata(name: str, *lines: str) -> dict[str, Entry]:
    text = "\n".join(["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *lines]) + "\n\nbody\n"
    return {f"{SITE}/{name}-1.0.dist-info/METADATA": Entry(text.encode())}


def test_licences_come_from_where_each_package_says_them() -> None:
    tree = {
        **metadata("a", "License-Expression: MIT OR Apache-2.0"),
        **metadata("b", "License: BSD", "Classifier: License :: OSI Approved :: BSD License"),
        **metadata("c", "License: PSF", " and more"),
        **metadata("d"),
        "usr/share/doc/zlib1g/copyright": Entry(b"Files: *\nLicense: Zlib\n text\n"),
    }
    found = {each.name: each for each in sbom.components(tree, PLATFORMS["linux/arm64"])}
    licenses = [found[name].licenses for name in ("a", "b", "c", "d", "zlib1g", "libc6")]
    assert licenses == [
        ("MIT OR Apache-2.0",),
        ("BSD License",),
        ("PSF",),
        ("unknown",),
        ("Zlib",),
        ("see its copyright file",),
    ]
    assert found["zlib1g"].architecture == "arm64"


def test_the_libraries_of_the_page_are_listed() -> None:
    directory = f"{SITE}/hajob/web/static/vendor"
    tree = {f"{directory}/{path.name}": Entry(path.read_bytes()) for path in vendored.DIRECTORY.iterdir()}
    found = [each for each in sbom.components(tree, PLATFORMS["linux/amd64"]) if each.kind == "npm"]
    assert {each.name: each.licenses for each in found} == {
        "htm": ("Apache-2.0",),
        "preact": ("MIT",),
        "uplot": ("MIT",),
    }
    assert {each.name: each.version for each in found} == {
        name: package["version"] for name, package in vendored.read_lock().items()
    }
    assert "preact " in sbom.table(found)
