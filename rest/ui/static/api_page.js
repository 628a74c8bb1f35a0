// The API documentation, generated from the worker's /openapi.json.

import { h } from "./dom.js";
import { get } from "./rest.js";
import { startTheme } from "./theme.js";

const main = document.getElementById("main");

function typeText(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.oneOf) return schema.oneOf.map(typeText).join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.type === "array") return `list of ${typeText(schema.items)}`;
  if (schema.type === "object" && typeof schema.additionalProperties === "object") return `map of ${typeText(schema.additionalProperties)}`;
  return [].concat(schema.type ?? "any").join(" or ");
}

function linked(schema) {
  const text = typeText(schema);
  const name = schema?.$ref?.split("/").at(-1) ?? schema?.items?.$ref?.split("/").at(-1);
  return name ? h("a", { href: `#entity-${name}` }, text) : text;
}

function table(caption, headings, rows) {
  return rows.length > 0 && h("table", {}, h("caption", { class: "small" }, caption),
    h("thead", {}, h("tr", {}, headings.map((each) => h("th", { scope: "col" }, each)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, at) => at ? h("td", {}, cell) : h("th", { scope: "row", class: "mono" }, cell))))));
}

function endpoint(path, method, operation) {
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  const answers = Object.entries(operation.responses).map(([status, answer]) => {
    const content = Object.values(answer.content ?? {})[0];
    return [status, answer.description, content?.schema ? linked(content.schema) : ""];
  });
  return h("details", { class: "endpoint" },
    h("summary", {}, h("span", { class: `method ${method}` }, method), h("code", {}, path), h("span", { class: "hint" }, operation.summary)),
    h("div", {},
      table("Parameters", ["Name", "In", "Type"], (operation.parameters ?? []).map((each) => [each.name, each.in, typeText(each.schema)])),
      body && h("p", {}, "Body: ", linked(body)),
      table("Answers", ["Status", "When", "Entity"], answers)));
}

function entity(name, schema) {
  const members = Object.entries(schema.properties ?? {});
  return h("section", { class: "endpoint", id: `entity-${name}` }, h("h3", { class: "mono" }, name),
    schema.description && h("p", { class: "hint" }, schema.description),
    members.length > 0
      ? table("Members", ["Member", "Type", ""], members.map(([member, each]) => [member, linked(each), [schema.required?.includes(member) ? "" : "optional ", each.description ?? ""]]))
      : h("p", {}, typeText(schema)));
}

async function start() {
  startTheme();
  const document_ = await get("openapi.json");
  const groups = new Map();
  for (const [path, operations] of Object.entries(document_.paths)) {
    const group = path.split("/")[1] || "worker";
    if (!groups.has(group)) groups.set(group, []);
    for (const [method, operation] of Object.entries(operations)) groups.get(group).push(endpoint(path, method.toUpperCase(), operation));
  }
  main.replaceChildren(
    h("div", { class: "head" }, h("h1", {}, document_.info.title), h("span", { class: "tag" }, document_.info.version),
      h("div", { class: "actions" }, h("a", { class: "button", href: "openapi.json" }, "openapi.json"))),
    h("p", { class: "hint" }, "Kafka Connect's API, as this worker serves it. Errors have the members error_code and message."),
    ...[...groups].map(([group, list]) => h("section", { class: "card", "aria-label": group }, h("h2", {}, `/${group === "worker" ? "" : group}`), list)),
    h("section", { class: "card", "aria-label": "Entities" }, h("h2", {}, "Entities"), Object.entries(document_.components.schemas).map(([name, schema]) => entity(name, schema))));
  document.body.dataset.ready = "API";
}

start().catch((error) => main.replaceChildren(h("div", { class: "card bad" }, h("p", {}, error.message))));
