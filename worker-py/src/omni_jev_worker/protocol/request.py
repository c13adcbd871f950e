"""A JSON value to a checked request: everything that the model may be given is decided here.

In the dialect ``laya`` what upstream answers is answered (a choice's criteria as a list of
labels, one option, a null state, ``labels`` of a noul), and what upstream answers with a 500 or a
traceback is refused with a 422 that names the place. The dialect ``jev`` takes what the hosted
protocol has, and no more.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from omni_jev_worker.protocol import jev
from omni_jev_worker.protocol.dialects import JEV, LAYA
from omni_jev_worker.protocol.limits import Limits
from omni_jev_worker.protocol.problems import Faults, Location, Problem, invalid, too_large
from omni_jev_worker.shortlist import FEWEST, FIELD

TYPES: Final = ("choice", "score", "noul")

_MISSING: Final = ("Field required", "missing")
_TEXT_TYPES: Final = (str, dict, list)

# `json.dumps` makes an encoder at each call, and a request can have thousands of texts.
_as_json: Final = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Request:
    """One decision to make."""

    model: str | None
    """The name that the client gave, known or not."""
    state: Any
    """A string, object or array (or null, which upstream reads as the text ``null``)."""
    questions: dict[str, dict[str, Any]]
    """Questions by id, in the client's order, in the form that Laya takes."""
    characters: int | None = None
    """Of all its texts together; none where nobody has counted."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The same questions about several states."""

    model: str | None
    states: tuple[Any, ...]
    """States as `Request.state`, or the `Problem` of one that cannot be answered."""
    questions: dict[str, dict[str, Any]]


def check(value: Any, limits: Limits, dialect: str = LAYA) -> Request:
    """Check a parsed body. Raises the 422 or 413 that the client gets.

    The caller has bounded the number of values and the depth (`decode.parse`).
    """
    faults = Faults()
    body = _check_body(value, faults)
    if "state" not in body:
        faults.add(("state",), *_MISSING)
    else:
        _check_state(("state",), body["state"], dialect, faults)
    questions = _check_questions(body, limits, dialect, faults)
    faults.raise_any()
    state = body["state"]
    characters = _check_state_size(state, limits) + _check_question_sizes(questions, limits)
    return Request(body.get("model"), state, questions, characters)


def check_batch(value: Any, limits: Limits, dialect: str = LAYA) -> Batch:
    """Check the parsed body of a batch: ``states`` instead of ``state``, a list.

    Raises the 422 or 413 for what is wrong with all of it; what is wrong with one state is in its
    place.
    """
    faults = Faults()
    body = _check_body(value, faults)
    states = body.get("states")
    if "states" not in body:
        faults.add(("states",), *_MISSING)
    elif not isinstance(states, list):
        faults.add(("states",), "Input should be a valid list", "list_type")
    elif not states:
        faults.add(("states",), "At least one state is required", "too_short")
    elif len(states) > limits.states:
        raise too_large(f"the request has more than {limits.states} states")
    questions = _check_questions(body, limits, dialect, faults)
    faults.raise_any()
    _check_question_sizes(questions, limits)
    checked = tuple(
        _checked_state(index, state, limits, dialect) for index, state in enumerate(states or ())
    )
    return Batch(model=body.get("model"), states=checked, questions=questions)


def _checked_state(index: int, state: Any, limits: Limits, dialect: str) -> Any:
    faults = Faults()
    _check_state(("states", index), state, dialect, faults)
    try:
        faults.raise_any()
        _check_state_size(state, limits)
    except Problem as problem:
        return problem
    return state


def _check_body(value: Any, faults: Faults) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid((), "Input should be a valid object", "object_type")
    _check_scalars(value)
    model = value.get("model")
    if model is not None and not isinstance(model, str):
        faults.add(("model",), "Input should be a valid string", "string_type")
    return value


def _check_state(here: Location, state: Any, dialect: str, faults: Faults) -> None:
    if not isinstance(state, _TEXT_TYPES) and (state is not None or dialect == JEV):
        _add_text_fault(here, faults)


def _check_scalars(value: Any) -> None:
    """Refuse what JSON can spell and nothing behind can carry: 1e999, lone surrogates."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending.extend(item.keys())
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
        elif isinstance(item, str):
            if not item.isascii() and _has_lone_surrogate(item):
                raise invalid((), "a text holds half a surrogate pair", "string_unicode")
        elif isinstance(item, float) and not math.isfinite(item):
            raise invalid((), "a number is out of range", "finite_number")


def _has_lone_surrogate(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _check_questions(
    body: dict[str, Any], limits: Limits, dialect: str, faults: Faults
) -> dict[str, dict[str, Any]]:
    here: Location = ("questions",)
    if "questions" not in body:
        faults.add(here, *_MISSING)
        return {}
    given = body["questions"]
    if not isinstance(given, dict):
        faults.add(here, "Input should be a valid object", "object_type")
        return {}
    if not given:
        faults.add(here, "At least one question is required", "too_short")
    if len(given) > limits.questions:
        raise too_large(f"the request has more than {limits.questions} questions")
    checked = {}
    for name, question in given.items():
        if not name:
            faults.add(here, "A question's id must not be empty", "string_too_short")
        if len(name) > limits.id_characters:
            raise too_large(f"a question's id is longer than {limits.id_characters} characters")
        place = (*here, name)
        own = Faults()
        checked[name] = _check_question(place, question, limits, own)
        if dialect == JEV and not own.found:
            checked[name] = jev.check_question(place, checked[name], own)
        faults.extend(own)
    return checked


def _check_question(
    here: Location, question: Any, limits: Limits, faults: Faults
) -> dict[str, Any]:
    if not isinstance(question, dict):
        faults.add(here, "Input should be a valid object", "object_type")
        return {}
    kind = question.get("type")
    if "type" not in question:
        faults.add((*here, "type"), *_MISSING)
        return {}
    # Not `kind not in TYPES` alone: a list or object is no string, and must not be compared.
    if not isinstance(kind, str) or kind not in TYPES:
        known = ", ".join(TYPES)
        faults.add((*here, "type"), f"Input should be one of {known}", "literal_error")
        return {}
    # An absent instruction is an empty one; a null one is the text `null`, as upstream reads it.
    instructions = question.get("instructions", "")
    if instructions is not None and not isinstance(instructions, _TEXT_TYPES):
        _add_text_fault((*here, "instructions"), faults)
    checked: dict[str, Any] = {"type": kind, "instructions": instructions}
    if FIELD in question:
        checked[FIELD] = _check_shortlist((*here, FIELD), kind, question[FIELD], faults)
    criteria = question.get("criteria")
    at = (*here, "criteria")
    if kind == "noul":
        _check_noul(at, criteria, faults)
        if "labels" in question:
            _check_labels((*here, "labels"), question["labels"], faults)
            checked["labels"] = question["labels"]
    elif "criteria" not in question:
        faults.add(at, *_MISSING)
    elif kind == "choice":
        _check_choice(at, criteria, limits, faults)
    else:
        _check_score(at, criteria, limits, faults)
    if "criteria" in question:
        checked["criteria"] = criteria
    return checked


def _check_shortlist(here: Location, kind: str, keep: Any, faults: Faults) -> int:
    """Give how many options are to be kept: this worker's addition to a choice."""
    # To JSON 3.0 is an integer too.
    is_number = isinstance(keep, int | float) and not isinstance(keep, bool) and keep == keep // 1
    if kind != "choice":
        faults.add(here, "Only a choice has a shortlist", "extra_forbidden")
    elif not is_number or keep < FEWEST:
        faults.add(here, f"Input should be an integer of {FEWEST} or more", "int_type")
    return int(keep) if is_number else FEWEST


def _check_noul(here: Location, criteria: Any, faults: Faults) -> None:
    if criteria is None:
        return
    if not isinstance(criteria, dict):
        faults.add(here, "Input should be a valid object", "object_type")
        return
    for key, text in criteria.items():
        if key.lower() not in ("true", "false"):
            faults.add(here, "Only `true` and `false` are allowed", "extra_forbidden")
        elif text is not None and not isinstance(text, _TEXT_TYPES):
            _add_text_fault((*here, key), faults)


def _check_labels(here: Location, labels: Any, faults: Faults) -> None:
    """Check the words that stand for false and true: upstream's addition to a noul."""
    if isinstance(labels, dict) and set(labels) == {"true", "false"}:
        texts = [text.strip() for text in labels.values() if isinstance(text, str)]
        if len(texts) == 2 and all(texts) and texts[0] != texts[1]:
            return
    message = "Input should map `true` and `false` to two different texts"
    faults.add(here, message, "labels_type")


def _check_choice(here: Location, criteria: Any, limits: Limits, faults: Faults) -> None:
    if isinstance(criteria, list):
        _check_label_list(here, criteria, faults)
    elif isinstance(criteria, dict):
        for label, text in criteria.items():
            if text is not None and not isinstance(text, _TEXT_TYPES):
                _add_text_fault((*here, label), faults)
    else:
        faults.add(here, "Input should be a valid object", "object_type")
        return
    _check_count(here, criteria, limits, faults)


def _check_label_list(here: Location, labels: list[Any], faults: Faults) -> None:
    """Check a choice's labels in upstream's short form.

    Upstream makes one option of two equal labels, and is then wholly certain of it.
    """
    seen: set[str] = set()
    for index, label in enumerate(labels):
        at = (*here, index)
        if not isinstance(label, str):
            faults.add(at, "Input should be a valid string", "string_type")
        elif not label:
            faults.add(at, "A label must not be empty", "string_too_short")
        elif label in seen:
            faults.add(at, "A label must not come twice", "duplicate")
        else:
            seen.add(label)


def _check_score(here: Location, criteria: Any, limits: Limits, faults: Faults) -> None:
    if not isinstance(criteria, list):
        faults.add(here, "Input should be a valid list", "list_type")
        return
    for index, level in enumerate(criteria):
        if not isinstance(level, _TEXT_TYPES):
            _add_text_fault((*here, index), faults)
    _check_count(here, criteria, limits, faults)


def _check_count(here: Location, criteria: Any, limits: Limits, faults: Faults) -> None:
    if not criteria:
        faults.add(here, "At least one option is required", "too_short")
    elif len(criteria) > limits.options:
        faults.add(here, f"At most {limits.options} options are possible", "too_long")


def _add_text_fault(here: Location, faults: Faults) -> None:
    faults.add(here, "Input should be a string, an object or an array", "text_type")


def _check_state_size(state: Any, limits: Limits) -> int:
    """Give the characters of a state. Raises the 413."""
    length = _characters(state)
    if length > limits.state_characters:
        raise too_large(f"the state is longer than {limits.state_characters} characters")
    return length


def _check_question_sizes(questions: dict[str, dict[str, Any]], limits: Limits) -> int:
    """Give the characters of all questions. Raises the 413."""
    total = 0
    for question in questions.values():
        for text in _texts(question):
            length = _characters(text)
            if length > limits.text_characters:
                most = limits.text_characters
                raise too_large(f"an instruction or criterion is longer than {most} characters")
            total += length
    if total > limits.question_characters:
        most = limits.question_characters
        raise too_large(f"the questions together are longer than {most} characters")
    return total


def _texts(question: dict[str, Any]) -> list[Any]:
    texts = [question["instructions"]]
    for part in (question.get("criteria"), question.get("labels")):
        if isinstance(part, dict):
            texts.extend(part.keys())
            texts.extend(part.values())
        elif isinstance(part, list):
            texts.extend(part)
    return texts


def _characters(text: Any) -> int:
    """Count what the tokenizer would read: structured texts are tokenized as JSON."""
    if text is None:
        return 0
    return len(text) if isinstance(text, str) else len(_as_json(text))
