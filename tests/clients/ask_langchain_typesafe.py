"""PyPI `langchain-typesafe`, as its documentation uses it."""

from langchain_typesafe import Choice, ClassifierResponse, Noul, Score, TypeSafeClassifier

from calls import Call, run

TYPES = {"noul": Noul, "choice": Choice, "score": Score}


def ask(call: Call) -> ClassifierResponse:
    questions = {name: TYPES[one["type"]](**one) for name, one in call["questions"].items()}
    classifier = TypeSafeClassifier(base_url=call["url"], api_key=call["key"])
    return classifier.invoke({"state": call["state"], "questions": questions})


run(ask)
