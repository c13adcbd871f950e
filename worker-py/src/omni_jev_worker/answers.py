"""Scores of rows to laya's answers, with fewer steps than laya takes.

The numbers are laya's to the last bit: what is computed on arrays is computed by the same
operations in the same precision. Where laya is another one, or a checkpoint has what is not known
here, its own way is taken: `decoder_for` compares the two.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

Answers = dict[str, dict[str, Any]]
Decode = Callable[[Any, Any, Sequence[int], Mapping[str, dict[str, Any]]], Answers]
"""Logits, acts, the options of each row, and laya's form of each question, to answers."""

_LEAST: Final = 1e-12


class Decoder:
    """Makes answers for one checkpoint. May be used by any thread."""

    def __init__(self, temperature: Callable[[str, int], Any]) -> None:
        """Take what gives the temperature of a type of question with so many options."""
        self._temperature = cache(temperature)

    def __call__(
        self,
        logits: NDArray[np.float32],
        act: NDArray[np.float32],
        options: Sequence[int],
        questions: Mapping[str, dict[str, Any]],
    ) -> Answers:
        """Give the answers to questions, each with its row in their order.

        Raises `ValueError` where the probabilities are no numbers.
        """
        return {
            name: self._answer(logits[row, :count], float(act[row, 0]), question)
            for row, (count, (name, question)) in enumerate(
                zip(options, questions.items(), strict=True)
            )
        }

    def _answer(
        self, logits: NDArray[np.float32], act: float, question: dict[str, Any]
    ) -> dict[str, Any]:
        kind, count = question["t"], len(logits)
        z = logits / self._temperature(kind, count)
        powers = np.exp(z - np.maximum.reduce(z))
        shares = powers / np.add.reduce(powers)
        numbers: list[float] = shares.tolist()
        best = max(numbers)
        if math.isnan(numbers[0]):
            # All of them, then.
            raise ValueError("probabilities that are no numbers")
        answer: dict[str, Any] = {"type": kind}
        if kind == "noul":
            true = numbers[1]
            answer["noul"] = round(true, 4)
            answer["confidence"] = round(max(true, 1.0 - true), 4)
        else:
            if kind == "choice":
                names = list(question["crit"])
                answer["choice"] = names[numbers.index(best)]
            else:
                names = _names(count)
                answer["score"] = round(float(np.add.reduce(_levels(count) * shares)), 4)
                answer["legend"] = dict(zip(names, question["crit"], strict=True))
            rounded = [round(number, 4) for number in numbers]
            answer["probabilities"] = dict(zip(names, rounded, strict=True))
            answer["confidence"] = round(_concentration(shares, count), 4)
        answer["answer_confidence"] = round(min(best, 1.0), 4)
        answer["action"] = {"act_probability": round(act, 4)}
        return answer


def _concentration(shares: NDArray[np.float32], count: int) -> float:
    """Give laya's confidence: one less the entropy, of that of equal shares."""
    if count < 2:
        return 1.0
    entropy = -np.add.reduce(shares * np.log(np.maximum(shares, _LEAST)))
    return min(1.0, max(0.0, float(1.0 - entropy / math.log(count))))


@cache
def _names(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@cache
def _levels(count: int) -> NDArray[np.int64]:
    return np.arange(count)


def temperature_of(
    agent: Any, number: int, options: int, bucket_of: Callable[[int, int], str]
) -> Any:
    """Give what a laya agent divides the logits of so many options by, for a type of question.

    ``number`` is laya's of the type, ``bucket_of`` names its temperature for so many options.
    """
    return agent.temperature_by_options.get(bucket_of(number, options), agent.temperature[number])


def decoder_for(
    agent: Any, numbers: Mapping[str, int], bucket_of: Callable[[int, int], str]
) -> Decode:
    """Give the shortest way from scores to answers that gives those of a laya agent.

    ``numbers`` and ``bucket_of`` are laya's: the number of each type, and the name of its
    temperature for so many options.
    """

    def as_laya_does(
        logits: Any, act: Any, options: Sequence[int], questions: Mapping[str, dict[str, Any]]
    ) -> Answers:
        rows = [{"markers": range(count)} for count in options]
        return cast(
            "Answers", agent._decode_answers(logits, act, rows, list(questions), questions, 0)
        )

    def temperature(kind: str, count: int) -> Any:
        return temperature_of(agent, numbers[kind], count, bucket_of)

    shorter = Decoder(temperature)
    return shorter if agrees(shorter, as_laya_does) else as_laya_does


def agrees(one: Decode, other: Decode) -> bool:
    """Say whether two ways give the same answers, for questions of every type and many sizes."""
    chance = np.random.default_rng(0)
    for count in (1, 2, 3, 5, 8, 11, 40, 255):
        texts = [f"option {number}" for number in range(count)]
        # A level may be structured, of which not every laya gives the same legend.
        levels: list[Any] = [{"a": 1}, ["b", None], *texts][:count]
        questions: dict[str, dict[str, Any]] = {
            "yes": {"t": "noul", "ins": "?", "crit": None},
            "which": {"t": "choice", "ins": "?", "crit": dict.fromkeys(texts)},
            "level": {"t": "score", "ins": "?", "crit": levels},
        }
        options = [2, count, count]
        for scale in (0.1, 3.0, 30.0):
            logits = chance.normal(scale=scale, size=(3, max(2, count))).astype(np.float32)
            act = chance.uniform(size=(3, 2)).astype(np.float32)
            given = [way(logits, act, options, questions) for way in (one, other)]
            # As text, which tells 1 from 1.0 and has the order.
            if repr(given[0]) != repr(given[1]):
                return False
    return True
