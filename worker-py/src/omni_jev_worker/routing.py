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


def _published(asked: str) -> str | None:
    # Longer than any of them, a name need not be folded.
    key = asked[:64].strip().lower()
    key = _OTHER_NAMES.get(key, key)
    return key if key in HUB_FOLDERS else None
