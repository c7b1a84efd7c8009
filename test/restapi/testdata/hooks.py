"""What the generator of requests is told about this interface, and what is checked besides."""

import os
import random

import schemathesis

SCOPES = {"read": 1, "exec": 2, "admin": 3}
SCOPE = os.environ["RAMET_FUZZ_SCOPE"]
SANDBOXES = os.environ["RAMET_FUZZ_SANDBOXES"].split(",")


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Nothing is followed or waited for, which would go on for as long as the client wants.

    A stream of events is described event by event, with the types of their data, which stand
    in an extension.
    """
    for path in raw_schema["paths"].values():
        for operation in path.values():
            kept = [p for p in operation.get("parameters", []) if p["name"] not in ("follow", "wait")]
            operation["parameters"] = kept
            for response in operation["responses"].values():
                stream = response.get("content", {}).get("text/event-stream")
                if stream:
                    data = stream["schema"]["x-events"] | {"end": {"type": "object"}}
                    stream["schema"] = {"anyOf": [event(name, schema) for name, schema in data.items()]}


def event(name, data):
    """Describes an event, whose data are JSON in a string."""
    json = {"type": "string", "contentMediaType": "application/json", "contentSchema": data}
    return {"type": "object", "required": ["event", "data"], "properties": {"event": {"const": name}, "data": json}}


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Most requests are about sandboxes that are there; none ends one of these."""
    if path_parameters and "id" in path_parameters and "/sandboxes/" in context.operation.path and random.random() < 0.8:
        if context.operation.definition.raw.get("operationId") != "destroy-sandbox":
            path_parameters["id"] = random.choice(SANDBOXES)
    return path_parameters


@schemathesis.serializer("application/x-tar")
def archive(ctx, value):
    """An archive is bytes like others, and mostly none."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")


@schemathesis.check
def no_defect(ctx, response, case):
    """No failure is ours. That nobody listens on a port is none."""
    if case.operation.definition.raw.get("operationId") == "reach-port" and response.status_code == 503:
        return
    assert response.status_code < 500, f"status {response.status_code}"


@schemathesis.check
def no_scope_does_more(ctx, response, case):
    """A request that needs a higher scope than the token's must not succeed."""
    security = case.operation.definition.raw.get("security") or []
    needed = max((SCOPES[role] for choice in security for roles in choice.values() for role in roles), default=0)
    if needed > SCOPES[SCOPE]:
        assert response.status_code >= 400, f"scope {SCOPE} was answered {response.status_code}"
