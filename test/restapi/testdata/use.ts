// What a program does with the generated types: it fails to compile if they say less.
import type { components, operations, paths } from "./api";

type Sandbox = paths["/v1/sandboxes"]["post"]["responses"]["201"]["content"]["application/json"];
type Fork = NonNullable<operations["fork-sandbox"]["requestBody"]>;
type Exec = operations["exec-command"]["responses"]["200"]["content"];

const state: components["schemas"]["State"] = "running";
const fork: Fork = { content: { "application/json": { count: 2, names: ["try-1", "try-2"] } } };

export function running(s: Sandbox): boolean {
  return s.state === state;
}

// @ts-expect-error: there is no such state.
export const wrong: components["schemas"]["State"] = "asleep";

export function output(json: Exec["application/json"], events: Exec["text/event-stream"]): string {
  return json.stdout + events + String(fork.content["application/json"].count);
}

// A list is a list, and never null.
export function first(changes: components["schemas"]["Diff"]["changes"]): components["schemas"]["ChangeKind"] | undefined {
  return changes[0]?.kind;
}
