"""MindIO's side for a rank: the package, or nothing where high availability is off, as in MindSpeed-LLM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Nothing:
    """Functions of `mindio_ttp.framework_ttp` and `mindio_ttp.utils` that do nothing: nobody is dialled."""

    @staticmethod
    def tft_exception_handler(function: Callable[..., None]) -> Callable[..., None]:
        """Guard nothing."""
        return function

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Any other of them."""
        if not name.startswith("tft_"):
            raise AttributeError(name)
        return lambda *_arguments: None


def mindio_of(*, is_on: bool) -> tuple[Any, Any]:
    """The modules `framework_ttp` and `utils`; where high availability is off the package is not imported."""
    if not is_on:
        return _Nothing(), _Nothing()
    from mindio_ttp import framework_ttp, utils

    return framework_ttp, utils
