"""How do we log, so that a person and a program can read it?

A fixed phrase, then fields. Whatever a field holds stays on one line, and a bearer token never gets out.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN: Final = re.compile(r"^[A-Za-z0-9_.,:/@+-]+$")
_SECRET: Final = re.compile(r"(?i)\b(bearer|token)([ =:]+)[A-Za-z0-9._~+/=-]{8,}")
_OURS: Final = "plimsoll"
# Other people's loggers are heard when something is wrong, these in full when we look for that.
_OTHERS: Final = ("kopf", "aiohttp", "kubernetes")


class TextFormatter(logging.Formatter):
    """2026-11-29T17:31:00.123Z INFO loop child put right namespace=chat child=Deployment/a."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it where there is one."""
        fields = " ".join(f"{name}={_shown(value)}" for name, value in _fields(record).items())
        where = record.name.rpartition(".")[2]
        head = f"{_when(record)} {record.levelname} {where} {_one_line(record.getMessage())}"
        return _without_secrets(f"{head} {fields}".rstrip() + self._trouble(record))

    def _trouble(self, record: logging.LogRecord) -> str:
        return "\n" + self.formatException(record.exc_info) if record.exc_info else ""


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger and phrase first, then the fields."""
        line: dict[str, Any] = {
            "time": _when(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        if record.exc_info:
            line["trouble"] = self.formatException(record.exc_info)
        return _without_secrets(json.dumps(line, default=str, ensure_ascii=False))


def set_up(shape: str, level: str, stream: TextIO | None = None) -> None:
    """Log to the stream (standard error) as "text" or "json", from "debug", "info", ... upwards."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter() if shape == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    least = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger(_OURS).setLevel(least)
    for name in _OTHERS:
        logging.getLogger(name).setLevel(least if least < logging.INFO else logging.WARNING)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _when(record: logging.LogRecord) -> str:
    when = datetime.fromtimestamp(record.created, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text if _PLAIN.match(text) else json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _without_secrets(text: str) -> str:
    return _SECRET.sub(r"\1\2***", text)
