"""What is put into command lines and environments: $(NAME) and mount paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.nodes.expansion import expand, mount_replacer

VARIABLES = {"A": "1", "DIR": "/hajob", "EMPTY": ""}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(DIR)z", "x1y/hajobz"),
        ("$(EMPTY)", ""),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$A ${A}", "$A ${A}"),
        ("$(A", "$(A"),
        ("cost: 5$", "cost: 5$"),
        ("$", "$"),
        ("", ""),
    ],
)
def test_expansion_is_that_of_kubernetes(text: str, expanded: str) -> None:
    assert expand(text, VARIABLES) == expanded


@given(st.text(alphabet="ab /_=:"))
def test_text_without_a_dollar_stays(text: str) -> None:
    assert expand(text, VARIABLES) == text


MOUNTS = {"/ckpt": "/real/c", "/ckpt/deep/": "/real/d", "/var/run/secrets/x": "/real/s"}


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("/ckpt", "/real/c"),
        ("/ckpt/a/b", "/real/c/a/b"),
        ("/ckpt/deep/a", "/real/d/a"),
        ("/ckpt/deeper", "/real/c/deeper"),
        ("--save=/ckpt", "--save=/real/c"),
        ("cp /ckpt/a '/ckpt/b'", "cp /real/c/a '/real/c/b'"),
        ("/lib:/ckpt:/ckpt/lib", "/lib:/real/c:/real/c/lib"),
        ("set -e\ncd /ckpt\n", "set -e\ncd /real/c\n"),
        ("echo x >/ckpt/f;cat </ckpt/f", "echo x >/real/c/f;cat </real/c/f"),
        ("/home/ckpt", "/home/ckpt"),
        ("/ckpts /ckpt2/x a/ckpt", "/ckpts /ckpt2/x a/ckpt"),
        ("file:///ckpt/x", "file:///ckpt/x"),
        ("/var/run/secrets/x/token", "/real/s/token"),
    ],
)
def test_a_mount_path_is_replaced_where_a_path_begins_and_ends(text: str, replaced: str) -> None:
    assert mount_replacer(MOUNTS)(text) == replaced


def test_what_was_put_in_is_not_replaced_again() -> None:
    assert mount_replacer({"/a": "/b/a", "/b": "/a/b"})("/a /b") == "/b/a /a/b"


def test_without_mounts_nothing_is_replaced() -> None:
    assert mount_replacer({})("/ckpt") == "/ckpt"
