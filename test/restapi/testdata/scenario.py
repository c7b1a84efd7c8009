"""Drives a daemon with the generated client: create, exec, fork, diff, destroy."""

import importlib
import pkgutil
import sys

import ramet_api
from ramet_api import AuthenticatedClient
from ramet_api.api.forks import diff_sandboxes, fork_sandbox
from ramet_api.api.processes import exec_command
from ramet_api.api.sandboxes import create_sandbox, destroy_sandbox, get_sandbox, list_sandboxes
from ramet_api.models import ChangeKind, CreateRequest, ExecRequest, ForkRequest, Problem, State

for module in pkgutil.walk_packages(ramet_api.__path__, "ramet_api."):
    importlib.import_module(module.name)

server, secret = sys.argv[1:]
client = AuthenticatedClient(base_url=server, token=secret, raise_on_unexpected_status=True, timeout=60)


def answered(response, status):
    assert response.status_code == status, response
    return response.parsed


base = answered(create_sandbox.sync_detailed(client=client, body=CreateRequest(image="box", name="generated")), 201)
assert base.state is State.RUNNING, base
said = answered(exec_command.sync_detailed(base.id, client=client, body=ExecRequest(argv=["guest", "say", "hello"])), 200)
assert said.stdout == "hello\n" and said.ok, said
forked = answered(fork_sandbox.sync_detailed(base.id, client=client, body=ForkRequest(count=2)), 200)
kids = [child.sandbox for child in forked.children]
assert len(kids) == 2 and all(kid.parent == base.id and kid.state is State.RUNNING for kid in kids), forked
wrote = answered(exec_command.sync_detailed(kids[0].id, client=client, body=ExecRequest(argv=["guest", "edit", "put /srv/new of the child"])), 200)
assert wrote.ok, wrote
diff = answered(diff_sandboxes.sync_detailed(base.id, client=client, to=kids[0].id), 200)
assert [(c.path, c.kind) for c in diff.changes] == [("/srv/new", ChangeKind.ADDED)], diff
assert answered(diff_sandboxes.sync_detailed(base.id, client=client, to=kids[1].id), 200).changes == []
listed = answered(list_sandboxes.sync_detailed(client=client), 200)
assert {s.id for s in listed.items} >= {base.id, *(kid.id for kid in kids)}, listed
for sandbox in [*kids, base]:
    assert destroy_sandbox.sync_detailed(sandbox.id, client=client).status_code == 204
gone = answered(get_sandbox.sync_detailed(base.id, client=client), 404)
assert isinstance(gone, Problem) and gone.code == "not_found", gone
print("done")
