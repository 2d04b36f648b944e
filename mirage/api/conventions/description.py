"""The API as OpenAPI describes it: names that clients are generated from, and what can go wrong where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from pydantic import create_model

from mirage.api.access.sessions import COOKIE
from mirage.api.conventions.bounded import add_bounds
from mirage.api.conventions.described import Described, JsonAnswer
from mirage.backends.acting.orders import LONGEST_ANSWER, Answer, Verdict
from mirage.backends.acting.wire import LARGEST_NUMBER
from mirage.domain.bounds import CHAIN, Data, Many, Number, Record
from mirage.domain.chain import Chain
from mirage.domain.files import Presence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi.routing import APIRoute

Document = dict[str, Any]

_PROBLEM = "application/problem+json"
_REF = "#/components/schemas/{model}"
_SECURITY: Document = {
    "token": {"type": "http", "scheme": "bearer", "description": "A token of Mirage, or Slurm's JWT."},
    "slurm": {"type": "apiKey", "in": "header", "name": "X-SLURM-USER-TOKEN", "description": "Slurm's JWT."},
    "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "A browser's session."},
}
_OPEN = ("/healthz", "/readyz", "/version", "/login", "/enter")
"""Who asks there needs not say who they are."""
_WRONG = {
    "401": "Nobody knows who asks.",
    "403": "The caller may not do this.",
    "404": "There is no such thing, or it is another's.",
    "409": "It cannot be done as things stand.",
    "413": "The body is too long.",
    "422": "What was sent is not what this address takes; the text names the field.",
    "429": "The caller asks too often.",
    "503": "The store, the cluster or what else is needed is not available now.",
    "504": "The loop has not answered in time; a command is withdrawn where the detail says so.",
}


_PARAMETERS = {
    "account": "On which it would run; empty: the user's default one.",
    "all": "All users's; for administrators.",
    "chain_id": "Of the chain; the owner may omit the mark at its end, or give the chain's name.",
    "command": "What to do with the chain.",
    "job_id": "Slurm's number.",
    "limit": "At most so many.",
    "name": "Of the predictor.",
    "nodes": "How many.",
    "order_id": "As the order has it.",
    "partition": "Empty: whichever it is.",
    "qos": "Empty: the default one.",
    "replay_id": "Of the run.",
    "state": "Empty: both.",
    "ticket": "What the link that logs in has at its end.",
    "token_id": "Of the token; not the token itself.",
    "wait": "Seconds to wait for an order where there is none yet.",
}
"""What parameters mean that say nothing themselves."""


class Problem(Described):
    """What went wrong (RFC 9457)."""

    type: str
    """What kind of problem it is; about:blank: its status says all."""
    title: str
    """The same in a few words."""
    status: int
    """As the answer's own."""
    detail: str
    """For the reader: what, where, what to do."""


_Bodies = create_model("Bodies", __base__=Described, chain=(Chain, ...), answer=(Answer, ...))
"""Forms of what operations read by themselves."""
_IN_ALL = Data(LONGEST_ANSWER)
"""The body is bounded; a text in it has no bound of its own, and is cut to what is kept."""
_ANSWER = Record(
    {
        "job_id": Number(-LARGEST_NUMBER, LARGEST_NUMBER),
        "reason": _IN_ALL,
        "text": _IN_ALL,
        "files": Many(LONGEST_ANSWER, Record({"reason": _IN_ALL})),
    }
)


class DescribedApp(FastAPI):
    """An application whose description is whole.

    FastAPI's own telemetry is off: the daemon's is in ``/metrics`` and its log, and environment variables are not
    to make it send more anywhere.
    """

    def __init__(self, title: str, version: str) -> None:
        super().__init__(
            title=title,
            version=version,
            summary="Proactive provisioning for Slurm",
            description="Times are RFC 3339 in UTC, durations are seconds, `null` is not known.",
            license_info={"name": "MIT", "identifier": "MIT"},
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,  # such a redirect repeats whatever host the client names
            default_response_class=JsonAnswer,
            telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
            generate_unique_id_function=_name,
        )

    def openapi(self) -> Document:
        """The description, made once."""
        if self.openapi_schema is None:
            self.openapi_schema = _completed(super().openapi())
        return self.openapi_schema


def _name(route: APIRoute) -> str:
    return route.name


def _completed(found: Document) -> Document:
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    for unwanted in ("HTTPValidationError", "ValidationError"):  # FastAPI's own form of problems is not ours
        schemas.pop(unwanted, None)
    schemas["Problem"] = Problem.model_json_schema()
    found["components"]["securitySchemes"] = _SECURITY
    for path, method, operation in _operations(found):
        for parameter in operation.get("parameters", ()):
            parameter.setdefault("description", _PARAMETERS.get(parameter["name"], ""))
        operation.setdefault("responses", {}).update(_problems(path, method, operation))
        if not path.startswith(_OPEN):
            operation["security"] = [{name: []} for name in _SECURITY] + [{}]
    schemas.update(_body_schemas())
    for name, title in {"create_chain": "Chain", "answer_order": "Answer"}.items():
        _add_body(found, name, title)
    return dict(sorted(found.items()))


def _operations(found: Document) -> Iterator[tuple[str, str, Document]]:
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _problems(path: str, method: str, operation: Document) -> Document:
    codes = {"503"} if path.startswith(_OPEN) else {"401", "403", "429", "503"}
    codes |= {"404"} if "{" in path else set()
    codes |= {"422"} if "422" in operation["responses"] or method in ("post", "put", "patch") else set()
    codes |= {"409", "413", "504"} if method == "post" and path.startswith("/api/") else set()
    codes -= {code for code in operation["responses"] if code != "422"}
    content = {_PROBLEM: {"schema": {"$ref": _REF.format(model="Problem")}}}
    return {code: {"description": _WRONG[code], "content": content} for code in sorted(codes)}


def _add_body(found: Document, name: str, title: str) -> None:
    """The body of an operation that reads it by itself."""
    body = {"application/json": {"schema": {"$ref": _REF.format(model=title)}}}
    for _, _, operation in _operations(found):
        if operation.get("operationId") == name:
            operation["requestBody"] = {"required": True, "content": body}


def _body_schemas() -> Document:
    """The bodies' own; what a chain's owner need not say is optional."""
    schemas: Document = _Bodies.model_json_schema(ref_template=_REF)["$defs"]
    for name in ("Chain", "JobRequest"):
        schemas[name]["required"] = [each for each in schemas[name]["required"] if each not in ("owner", "user")]
    for name in ("Answer", "FileState"):  # of agents, whose answers are whole
        schemas[name]["required"] = list(schemas[name]["properties"])
    for kind in (Verdict, Presence):
        schemas[kind.__name__] |= {"type": "string", "enum": list(kind.__members__)}
    add_bounds(schemas["Chain"], CHAIN, schemas)
    add_bounds(schemas["Answer"], _ANSWER, schemas)
    return schemas
