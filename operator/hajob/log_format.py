"""How every process of Hajob's image writes its log: as text for people, or an object a line for what collects logs."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, Literal

LogFormat = Literal["text", "json"]
VARIABLE: Final = "HAJOB_LOG_FORMAT"

_FIELDS: Final = {"levelname": "level", "name": "logger", "message": "msg", "exc_info": "exception"}
"""Of a record, and what they are called in an object; its `ts` is RFC 3339."""


def begin_logging(log_format: str, text: str, *, level: str = "INFO", time_format: str | None = None) -> None:
    """Let this process log to standard error.

    Args:
        log_format: a `LogFormat`; whatever is not `json` is text.
        text: the line, where it is text.
        level: what is logged at least.
        time_format: of the line's time.
    """
    formatter = _json_formatter() if log_format == "json" else logging.Formatter(text, time_format)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler])


def _json_formatter() -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter

    class Objects(JsonFormatter):
        """Nothing but the known fields: kopf hangs objects of its own on records."""

        def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
            return {name: log_data[name] for name in ("ts", *_FIELDS.values()) if name in log_data}

    return Objects(
        "{levelname}{name}{message}", style="{", timestamp="ts", rename_fields=_FIELDS, json_ensure_ascii=False
    )
