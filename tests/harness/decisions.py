"""The requests that the tests send."""

from typing import Any

REFUND_TICKET = "Please refund the duplicate charge."
THANK_YOU_NOTE = "Thank you so much, everything works perfectly now. Have a nice day!"

REFUND: dict[str, Any] = {"type": "noul", "instructions": "Does the customer ask for a refund?"}
TEAM: dict[str, Any] = {
    "type": "choice",
    "instructions": "Which team should handle this ticket?",
    "criteria": {
        "billing": "charges, invoices and refunds",
        "technical": "something does not work",
        "sales": None,
    },
}
MOOD: dict[str, Any] = {
    "type": "score",
    "instructions": "How upset is the customer?",
    "criteria": ["calm", "annoyed", "furious"],
}
EVERY_TYPE: dict[str, dict[str, Any]] = {"refund": REFUND, "team": TEAM, "mood": MOOD}


def decision(state: object = REFUND_TICKET, **questions: dict[str, Any]) -> dict[str, Any]:
    """Make a request for the demo checkpoint; without questions it asks whether to refund."""
    return {"model": "demo", "state": state, "questions": questions or {"refund": REFUND}}
