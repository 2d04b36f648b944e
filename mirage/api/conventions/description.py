"""The OpenAPI description: operation names, and the errors of each operation."""

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
    "token": {"type": "http", "scheme": "bearer", "description": "A token of Mirage, or a JWT of Slurm."},
    "slurm": {"type": "apiKey", "in": "header", "name": "X-SLURM-USER-TOKEN", "description": "A JWT of Slurm."},
    "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "Session of a browser."},
}
_OPEN = ("/healthz", "/readyz", "/version", "/login", "/enter")
"""Endpoints that need no credentials."""
_WRONG = {
    "401": "Unauthenticated: missing or invalid credentials.",
    "403": "Access denied.",
    "404": "Not found, or owned by another user.",
    "409": "Not possible in the current state.",
    "413": "The body is too large.",
    "422": "Invalid request; the detail names the field.",
    "429": "Too many requests.",
    "503": "Temporarily unavailable: the database, the cluster or another required part.",
    "504": "Timeout of the decision loop; the detail says whether the command is withdrawn.",
}


_PARAMETERS = {
    "account": "Account; empty: the user's default.",
    "all": "Include all users, for administrators.",
    "chain_id": "Chain ID; the owner may omit the mark at its end, or give the chain's name.",
    "command": "Command: pause, resume or cancel.",
    "job_id": "Job ID.",
    "limit": "Maximum number of items.",
    "name": "Name of the predictor.",
    "nodes": "Number of nodes.",
    "order_id": "ID of the request to the agent.",
    "partition": "Partition; empty: any.",
    "qos": "QOS; empty: the default.",
    "replay_id": "Replay ID.",
    "state": "Job state; empty: both.",
    "ticket": "Secret part of the login link.",
    "token_id": "Token ID, not the secret text.",
    "wait": "Seconds to wait for a request to the agent.",
}
"""Default descriptions of parameters."""


class Problem(Described):
    """Problem details (RFC 9457)."""

    type: str
    """Problem type; about:blank: the status says it all."""
    title: str
    """Name of the status."""
    status: int
    """HTTP status code."""
    detail: str
    """What is wrong, where, and what to do."""


_Bodies = create_model("Bodies", __base__=Described, chain=(Chain, ...), answer=(Answer, ...))
"""Schemas of bodies that operations parse themselves."""
_IN_ALL = Data(LONGEST_ANSWER)
"""Only the body as a whole is bounded; texts in it are truncated when stored."""
_ANSWER = Record(
    {
        "job_id": Number(-LARGEST_NUMBER, LARGEST_NUMBER),
        "reason": _IN_ALL,
        "text": _IN_ALL,
        "files": Many(LONGEST_ANSWER, Record({"reason": _IN_ALL})),
    }
)


class DescribedApp(FastAPI):
    """An application with a complete API description.

    FastAPI's telemetry is off, so that environment variables cannot make the daemon send data. Mirage has
    ``/metrics`` and its log.
    """

    def __init__(self, title: str, version: str) -> None:
        super().__init__(
            title=title,
            version=version,
            summary="Proactive provisioning for Slurm",
            description="Times are RFC 3339 in UTC, durations are seconds, `null` means unknown or not set.",
            license_info={"name": "MIT", "identifier": "MIT"},
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,  # such a redirect would repeat any host that the client names
            default_response_class=JsonAnswer,
            telemetry={"auto_configure": False, "tracing": False, "metrics": False, "logs": False},
            generate_unique_id_function=_name,
        )

    def openapi(self) -> Document:
        """Return the description, built once."""
        if self.openapi_schema is None:
            self.openapi_schema = _completed(super().openapi())
        return self.openapi_schema


def _name(route: APIRoute) -> str:
    return route.name


def _completed(found: Document) -> Document:
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    for unwanted in ("HTTPValidationError", "ValidationError"):  # replaced by Problem
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
    """Describe the body of an operation that parses it itself."""
    body = {"application/json": {"schema": {"$ref": _REF.format(model=title)}}}
    for _, _, operation in _operations(found):
        if operation.get("operationId") == name:
            operation["requestBody"] = {"required": True, "content": body}


def _body_schemas() -> Document:
    """Return the schemas of the bodies; fields that the daemon fills in are optional."""
    schemas: Document = _Bodies.model_json_schema(ref_template=_REF)["$defs"]
    for name in ("Chain", "JobRequest"):
        schemas[name]["required"] = [each for each in schemas[name]["required"] if each not in ("owner", "user")]
    for name in ("Answer", "FileState"):  # agents send complete responses
        schemas[name]["required"] = list(schemas[name]["properties"])
    for kind in (Verdict, Presence):
        schemas[kind.__name__] |= {"type": "string", "enum": list(kind.__members__)}
    add_bounds(schemas["Chain"], CHAIN, schemas)
    add_bounds(schemas["Answer"], _ANSWER, schemas)
    return schemas
