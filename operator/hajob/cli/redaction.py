"""What is taken out of objects and logs before they are given away: passwords, tokens, keys. Pure.

It knows names that people give to secrets, and forms that secrets have. A secret without either stays: whoever gives an
archive away looks into it, and it says so itself.
"""

from __future__ import annotations

import re
from typing import Any, Final

REMOVED: Final = "(removed)"
_WORDS: Final = (
    r"(?:token(?!s|i[sz])|secret|passwd|password|passphrase|credential|api_?-?key|access_?-?key|private_?-?key)"
)
_NAME: Final = re.compile(rf"(?i){_WORDS}")
_HARMLESS_KEYS: Final = frozenset(
    {"secretName", "imagePullSecrets", "automountServiceAccountToken", "secretRef", "secret"}
)
"""Fields of pods that name a Secret and hold none."""
_PATTERNS: Final = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"),  # a JSON web token, as service accounts have them
    re.compile(r"\b(?:gh[pousr]_|github_pat_|hf_|glpat-|xox[abpr]-|sk-)[\w-]{16,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{8,}"),
    re.compile(r"(?<=://)[^\s/:@]*:[^\s/@]+(?=@)"),
)
_NAMED: Final = re.compile(
    rf"""(?ix)
    (?P<name>[\w.-]*{_WORDS}[\w.-]*["']?)   # a name, perhaps quoted, as in JSON
    (?P<between>\s*[=:]\s*|\s+(?<=--\S)?)
    (?P<value>"[^"]*"|'[^']*'|[^\s,;&"']+)
    """
)
_OPTION: Final = re.compile(rf"(?i)--?[\w.-]*{_WORDS}[\w.-]*")
_REPETITIONS: Final = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})


def redact_text(told: str) -> str:
    """Return a text without the secrets in it."""
    for pattern in _PATTERNS:
        told = pattern.sub(REMOVED, told)
    return _NAMED.sub(_without_value, told)


def _without_value(found: re.Match[str]) -> str:
    value = found["value"]
    # "token 42 of 4096" is how a training counts, and a name alone says nothing.
    between = found["between"]
    is_option = found["name"].startswith("-")
    if value.strip("\"'").replace(".", "").isdigit() or value == REMOVED or not (between.strip() or is_option):
        return found[0]
    return f"{found['name']}{between}{REMOVED}"


def redact_object(raw: Any) -> Any:  # noqa: ANN401  any JSON
    """Return an object as the server has it, without the secrets in it."""
    if isinstance(raw, dict):
        return _redact_mapping(raw)
    if isinstance(raw, list):
        return _redact_list(raw)
    return redact_text(raw) if isinstance(raw, str) else raw


def _redact_mapping(raw: dict[str, Any]) -> dict[str, Any]:
    # A variable has its name in one field and its value in the next.
    is_secret_variable = isinstance(raw.get("name"), str) and _NAME.search(raw["name"]) is not None
    made: dict[str, Any] = {}
    for key, value in raw.items():
        if key in _REPETITIONS:
            continue
        is_secret = is_secret_variable and key == "value"
        is_secret |= key not in _HARMLESS_KEYS and _NAME.search(key) is not None
        made[key] = REMOVED if is_secret and isinstance(value, str) else redact_object(value)
    return made


def _redact_list(raw: list[Any]) -> list[Any]:
    made: list[Any] = []
    after_option = False
    for one in raw:
        # The value of an option may be the next argument.
        made.append(REMOVED if after_option and isinstance(one, str) and one[:1] != "-" else redact_object(one))
        after_option = isinstance(one, str) and _OPTION.fullmatch(one) is not None
    return made
