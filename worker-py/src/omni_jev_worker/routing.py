"""Which checkpoint answers a request: the one it names, the one its language needs, or the default.

The names are upstream's. A name that is none of them means the default, because a client of the
hosted service names that service's models.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from omni_jev_worker.checkpoints import HUB_FOLDERS, Checkpoint, origin_of

LANGUAGE: Final = "language"
OFF: Final = "off"
WAYS: Final = (LANGUAGE, OFF)
"""What ``--routing`` takes."""

# Those between which laya's language routing chooses.
_BY_LANGUAGE: Final = ("english", "multilingual")

# As laya's router and server have them, but for `laya`, `default` and the repository's own name:
# a client that says no more than that wants what this worker serves.
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "en": "english",
    "multi": "multilingual",
    "ml": "multilingual",
    "laya-multilingual": "multilingual",
    "convaiinnovations/laya-multilingual": "multilingual",
    "typed": "typed-decisions",
    "typed_decisions": "typed-decisions",
    "decisions": "typed-decisions",
    "laya-typed-decisions": "typed-decisions",
    "convaiinnovations/laya-typed-decisions": "typed-decisions",
}

CHECKPOINT_HEADER: Final = "x-omni-jev-checkpoint"
REASON_HEADER: Final = "x-omni-jev-language-reason"
"""Of an answer whose checkpoint was chosen by its state's language: which, and by what rule."""

ByLanguage = Callable[[Any, str], dict[str, Any]]
"""Laya's language routing: a state and the default's name to a decision (`model.route`)."""


class Routing:
    """Chooses. Decisions have the fields of upstream's router."""

    def __init__(
        self,
        default: Checkpoint,
        *,
        alias: str | None = None,
        way: str = LANGUAGE,
        preloaded: Mapping[str, str] | None = None,
        by_language: ByLanguage | None = None,
    ) -> None:
        """Take the default, another name of it, and the origins of what is loaded by name.

        ``by_language`` is asked where the default is one of those that laya's routing chooses from.
        """
        self._default = default
        self._alias = alias
        self._preloaded = dict(preloaded or {})
        chooses = way == LANGUAGE and default.name in _BY_LANGUAGE
        self._by_language = by_language if chooses else None

    def by_name(self, asked: str | None) -> dict[str, Any] | None:
        """Choose by the name that a request gives; none if that says nothing."""
        if asked is None:
            return None
        default = self._default.name
        if asked == default:
            return self._decision(default, f"explicit model={asked!r}")
        if asked == self._alias:
            return self._decision(default, f"{asked} is an alias of the default ({default})")
        key = asked if asked in self._preloaded else _published(asked)
        if key is None:
            return None
        return self._decision(key, f"explicit model={asked!r}")

    @property
    def reads_states(self) -> bool:
        """Whether `by_state` looks at the state, which takes up to tens of milliseconds."""
        return self._by_language is not None

    def by_state(self, state: Any) -> dict[str, Any]:
        """Choose for a request whose name says nothing."""
        default = self._default.name
        if self._by_language is None:
            return self._decision(default, f"using default ({default})")
        found = self._by_language(state, default)
        return self._decision(found["model"], found["reason"]) | {
            "detection": found["detection"],
            "workflow": found["workflow"],
        }

    def _decision(self, name: str, reason: str) -> dict[str, Any]:
        if name == self._default.name:
            origin = self._default.origin
        else:
            origin = self._preloaded.get(name) or origin_of(name)
        return {
            "model": name,
            "repo": origin,
            "reason": reason,
            "detection": None,
            "workflow": None,
        }


def language_reason(decision: Mapping[str, Any]) -> str | None:
    """Name the rule of laya's language routing that decided; none where another thing did.

    The decision's own `reason` is a sentence, with numbers of its state in it.
    """
    found = decision["detection"]
    if found is None:
        return None
    if found["script"] == "unknown":
        return "no_text_default"
    if found["script"] != "latin":
        return "language_non_latin_script"
    if not found["is_english"]:
        return "language_not_english"
    return "language_undecided_default" if found["language_undecided"] else "language_english"


def headers_of(decision: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """Give the headers that tell of a choice by language; none for another choice."""
    reason = language_reason(decision)
    if reason is None:
        return []
    return [
        (CHECKPOINT_HEADER.encode(), decision["model"].encode()),
        (REASON_HEADER.encode(), reason.encode()),
    ]


def _published(asked: str) -> str | None:
    # Longer than any of them, a name need not be folded.
    key = asked[:64].strip().lower()
    key = _OTHER_NAMES.get(key, key)
    return key if key in HUB_FOLDERS else None
