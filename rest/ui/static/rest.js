// Requests to the worker that served this page, and to no other host.

const ROOT = new URL("../", import.meta.url);

export class RestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// path`connectors/${name}/status`: names are encoded.
export function path(parts, ...names) {
  return parts.reduce((made, part, at) => made + encodeURIComponent(names[at - 1]) + part);
}

async function send(method, where, body) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(new URL(where, ROOT), { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new RestError(0, "The worker does not answer");
  }
  const text = await answer.text();
  if (answer.ok) return text;
  let message = text;
  try {
    message = JSON.parse(text).message ?? text;
  } catch { /* not JSON, or empty */ }
  throw new RestError(answer.status, message || `The worker responded with status ${answer.status}`);
}

// strings, because snapshot IDs and some offsets exceed JavaScript's safe integers
const exact = (_, value, context) =>
  typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source ? context.source : value;

export async function ask(method, where, body) {
  const text = await send(method, where, body);
  return text ? JSON.parse(text, exact) : null;
}

export const get = (where) => ask("GET", where);

export async function operate(connector, operation, args = {}) {
  return ask("POST", path`connectors/${connector}/operations/${operation}`, args);
}

// The metrics of one connector, from the workers that run its tasks: [{name, labels, value}].
export async function metrics(connector, workers) {
  const texts = await Promise.all(workers.map((worker) =>
    send("GET", path`ui/metrics.txt?connector=${connector}&worker=${worker}`).catch(() => "")));
  return texts.flatMap((text) => text.split("\n").map(sample).filter(Boolean));
}

const LINE = /^([a-zA-Z_:][\w:]*)\{(.*)\} (\S+)/;
const LABEL = /([a-zA-Z_]\w*)="((?:\\.|[^"\\])*)"/g;
const ESCAPED = { "\\n": "\n", '\\"': '"', "\\\\": "\\" };

function sample(line) {
  const found = LINE.exec(line);
  if (!found) return null;
  const labels = {};
  for (const [, name, value] of found[2].matchAll(LABEL)) labels[name] = value.replace(/\\["\\n]/g, (each) => ESCAPED[each]);
  return { name: found[1], labels, value: Number(found[3]) };
}

let known;
// Data that the page requests once: the worker group, and patterns of secret keys and values. Failed requests are retried.
export async function worker(again = false) {
  if (!known || again) {
    const asked = known = get("ui/worker.json");
    asked.catch(() => { if (known === asked) known = undefined; });
  }
  return known;
}

export const HIDDEN = "[hidden]";

// Returns true if a configuration value is a secret, by its definition or by the name of the key. Placeholders are not secrets.
export function isSecret(key, value, definition, rules) {
  if (/^\$\{[^}]*\}$/.test((value ?? "").trim())) return false;
  return definition?.type === "PASSWORD" || new RegExp(rules.secret_keys, "i").test(key);
}

export function shownValue(key, value, definition, rules) {
  if (value === null || value === undefined) return "";
  if (isSecret(key, value, definition, rules)) return HIDDEN;
  return rules.secret_values.reduce((text, [form, instead]) => text.replace(new RegExp(form, "gi"), instead), value);
}
