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
_SHORT: Final = r"(?:key|ak|sk|pass|pwd|auth|authorization|cookie|credentials?|sig|signature|dsn)"
"""Words that are secrets' names where they stand at the end of a name: `OBS_SK`, `--auth`, `WANDB_KEY`."""
_ALONE: Final = r"(?:ak|sk|pwd|auth|credentials?|dsn)"
"""Those of them that are names of secrets alone, too: `key: node-role` and `pass: 3` are none."""
_SHORT_NAME: Final = re.compile(rf"(?i)(?:^|.*[_.-]){_SHORT}")
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
    re.compile(r"\bAIza[\w-]{30,}"),
    # Addresses of robots that write into a chat: whoever has one writes there.
    re.compile(r"(?<=/hook/)[\w-]{8,}"),
    re.compile(r"(?<=hooks\.slack\.com/services/)[\w/-]+"),
)
_KEPT_HEADS: Final = (
    re.compile(
        r"""(?i)(\b(?:proxy-)?authorization["']?\s*[:=]\s*["']?(?:(?:basic|bearer|token|digest|negotiate)\s+)?)[^\s"']+"""
    ),
    re.compile(r"""(?i)(\b(?:set-)?cookie["']?\s*[:=]\s*)[^\n"']+"""),
    re.compile(rf"""(?i)([?&][\w.-]*(?:{_WORDS}|{_SHORT})=)[^&\s"']+"""),
    re.compile(rf"""(?i)((?<![\w.-])(?:[\w.-]*[_.-])?{_SHORT}\s*=\s*["']?)[^\s,;&"'=]+"""),
    re.compile(rf"""(?i)((?<![\w.-])(?:[\w.-]*[_.-]{_SHORT}|{_ALONE})["']?:\s*["']?)[^\s,;&"'=]+"""),
    re.compile(rf"""(?i)((?<!\S)--?(?:[\w.-]*[_.-])?{_SHORT}(?:=|\s+))(?!-)[^\s"']+"""),
    re.compile(r"""((?<!\S)(?:-u|--user)(?:=|\s+)["']?[^\s:"']+:)[^\s"']+"""),
    re.compile(r"""(\b(?:sshpass|mysql\w*|login)\b[^\n]*?\s-p\s*)[^\s"']+"""),
)
"""What stands before a secret stays; the secret goes."""
_NAMED: Final = re.compile(
    rf"""(?ix)
    (?<![\w.-])                             # a long word is looked at once, not from each of its letters
    (?P<name>[\w.-]*?{_WORDS}[\w.-]*["']?)  # a name, perhaps quoted, as in JSON
    (?P<between>\s*[=:]\s*|\s+(?<=--\S)?)
    (?P<value>"[^"]*"|'[^']*'|[^\s,;&"']+)
    """
)
_OPTION: Final = re.compile(rf"(?i)--?[\w.-]*{_WORDS}[\w.-]*|--?(?:[\w.-]*[_.-])?{_SHORT}")
_REPETITIONS: Final = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})


def redact_text(told: str) -> str:
    """Return a text without the secrets in it."""
    for pattern in _PATTERNS:
        told = pattern.sub(REMOVED, told)
    for pattern in _KEPT_HEADS:
        told = pattern.sub(_with_head_alone, told)
    return _NAMED.sub(_without_value, told)


def _with_head_alone(found: re.Match[str]) -> str:
    # A number is what something counts, and what is removed already has its end behind it.
    rest = found[0].removeprefix(found[1])
    return found[0] if rest.strip(".").isdigit() or rest.startswith(REMOVED[:-1]) else found[1] + REMOVED


def _without_value(found: re.Match[str]) -> str:
    value = found["value"]
    # "token 42 of 4096" is how a training counts, and a name alone says nothing.
    between = found["between"]
    is_option = found["name"].startswith("-")
    is_count = "token" in found["name"].lower() and value.strip("\"'").replace(".", "").isdigit()
    if is_count or value == REMOVED or not (between.strip() or is_option):
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
    name = raw.get("name")
    is_secret_variable = isinstance(name, str) and bool(_NAME.search(name) or _SHORT_NAME.fullmatch(name))
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
