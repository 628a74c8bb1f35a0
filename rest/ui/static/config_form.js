// A form for a plugin's config keys. The worker validates it while the user fills it in.

import { h, morph, notice, options } from "./dom.js";
import { HIDDEN, ask, get, isSecret, path } from "./rest.js";
import { number, plural } from "./texts.js";

const FIRST = ["topics", "topics.regex", "tasks.max", "key.converter", "value.converter", "errors.tolerance"];
const WAIT_MS = 450;
const EXTRA = "More keys, one key=value per line: for converters, transformations, and clients";

export const definitionsOf = (plugin) => get(path`connector-plugins/${plugin}/config`);

// One form: `values` are the entered values, `draw()` renders the elements, `check()` validates them on the worker.
export function configForm({ name, plugin, definitions, given = {}, rules, onchange = () => {} }) {
  const known = new Map(definitions.map((each) => [each.name, each]));
  const values = new Map(), touched = new Set(), unseen = new Set();
  let errors = new Map(), recommended = new Map(), count = null, failed = "", everything = false, wanted = "", attempted = false;
  let timer = 0, turns = 0, newest = null, sending = false, body = null, extra = "";
  fill(given, (key, value) => isSecret(key, value, known.get(key), rules));

  const form = { config, element, check, take, submit };

  function config() {
    const made = { name: name(), "connector.class": plugin };
    for (const key of unseen) made[key] = given[key];
    for (const [key, value] of values) if (value !== "") made[key] = value;
    for (const line of extra.split("\n")) {
      const [key, ...rest] = line.split("=");
      if (key.trim() && rest.length) made[key.trim()] = rest.join("=").trim();
    }
    return made;
  }

  // Hidden values and values that do not fit on one line are left unchanged.
  function fill(config, isKept) {
    given = config;
    values.clear();
    unseen.clear();
    extra = "";
    for (const [key, value] of Object.entries(config)) {
      if (key === "name" || key === "connector.class") continue;
      if (isKept(key, value) || (!known.has(key) && /[\r\n]|^\s|\s$/.test(value))) unseen.add(key);
      else if (known.has(key)) values.set(key, value);
      else extra += `${key}=${value}\n`;
    }
  }

  // Accept a complete configuration that the user has written elsewhere.
  function take(config) {
    const texts = Object.entries(config).filter(([, value]) => value !== null).map(([key, value]) => [key, String(value)]);
    const hidden = texts.filter(([, value]) => value.includes(HIDDEN)).map(([key]) => key);
    if (hidden.length) notice(`Hidden in the copied configuration; fill in: ${hidden.join(", ")}`, true);
    fill(Object.fromEntries(texts.filter(([key]) => !hidden.includes(key))), () => false);
    redraw();
    return check();
  }

  // Validates the values on the worker and submits valid values once, even if it is called repeatedly.
  async function submit(send) {
    if (sending) return;
    sending = true;
    try {
      await check();
      if (count === 0) await send(config());
      else attempt();
    } finally {
      sending = false;
    }
  }

  function attempt() {
    attempted = true;
    redraw();
    body.querySelector("[aria-invalid=true]")?.focus();
  }

  function changed(key) {
    touched.add(key);
    clearTimeout(timer);
    timer = setTimeout(check, WAIT_MS);
    onchange();
  }

  // A newer check replaces a pending one.
  function check() {
    clearTimeout(timer);
    newest = validate(turns += 1);
    return newest;
  }

  async function validate(turn) {
    try {
      const answer = await ask("PUT", path`connector-plugins/${plugin}/config/validate`, config());
      if (turn !== turns) return newest;
      errors = new Map(answer.configs.filter((each) => each.value.errors.length).map((each) => [each.value.name, each.value.errors]));
      recommended = new Map(answer.configs.map((each) => [each.value.name, each.value.recommended_values]));
      [count, failed] = [answer.error_count, ""];
    } catch (error) {
      if (turn !== turns) return newest;
      [count, failed] = [null, error.message];
    }
    redraw();
    onchange();
  }

  function element() {
    body = h("div", {}, draw());
    return body;
  }

  function redraw() {
    if (body) morph(body, h("div", {}, draw()));
  }

  function isShown(each) {
    if (wanted) return each.name.includes(wanted.toLowerCase()) || each.documentation.toLowerCase().includes(wanted.toLowerCase());
    return everything || each.required || each.importance === "HIGH" || FIRST.includes(each.name) || values.has(each.name) ||
      unseen.has(each.name) || (errors.has(each.name) && (touched.has(each.name) || attempted));
  }

  function draw() {
    const all = definitions.filter((each) => each.name !== "name" && each.name !== "connector.class");
    const place = (each) => FIRST.includes(each.name) ? FIRST.indexOf(each.name) : FIRST.length;
    const shown = all.filter(isShown).sort((a, b) => place(a) - place(b));
    const groups = Map.groupBy(shown, (each) => place(each) < FIRST.length ? "What it reads, and how" : each.group || "Other keys");
    return [
      h("div", { class: "bars", key: "search" },
        h("input", { type: "search", "aria-label": "Find a key", placeholder: "Find a key…", value: wanted, oninput: (event) => { wanted = event.target.value; redraw(); } }),
        h("button", { type: "button", "aria-pressed": String(everything), onclick: () => { everything = !everything; redraw(); } }, everything ? "Important keys" : `All ${number(all.length)} keys`),
        h("span", { class: "hint end", role: "status" }, summary())),
      failed && h("p", { class: "error", key: "failed" }, failed),
      attempted && count > 0 && list(),
      [...groups].map(([group, keys]) => h("fieldset", { class: "card", key: `group ${group}` }, h("legend", {}, group), h("div", { class: "fields" }, keys.map(field)))),
      h("div", { class: "card field", key: "extra" }, h("label", { for: "extra-keys" }, EXTRA),
        h("textarea", { id: "extra-keys", spellcheck: "false", value: extra, oninput: (event) => { extra = event.target.value; changed("extra"); } }),
        [...unseen].some((key) => !known.has(key)) && h("p", { class: "doc" },
          `Hidden, and kept as they are: ${[...unseen].filter((key) => !known.has(key)).join(", ")}`),
        [...errors].filter(([key]) => !known.has(key)).map(([key, texts]) => h("p", { class: "error" }, `${key}: ${texts.join(" ")}`))),
    ];
  }

  function summary() {
    if (count === null) return failed ? "" : "Not checked yet";
    return count === 0 ? "The worker finds no mistake" : plural(count, "mistake");
  }

  function list() {
    return h("div", { class: "card bad", role: "alert", key: "list" }, h("ul", {}, [...errors].map(([key, texts]) => h("li", {}, h("code", {}, key), `: ${texts.join(" ")}`))));
  }

  function field(each) {
    const id = `key-${each.name}`, wrong = errors.get(each.name) ?? [];
    const loud = wrong.length > 0 && (touched.has(each.name) || attempted);
    return h("div", { class: "field", key: each.name },
      h("label", { for: id }, each.name, each.required && h("span", { class: "required" }, " required")),
      input(each, id, loud),
      h("p", { class: "doc", id: `${id}-doc` }, each.documentation),
      loud && h("p", { class: "error", id: `${id}-error` }, wrong.join("\n")));
  }

  function input(each, id, loud) {
    const value = values.get(each.name) ?? "";
    const shared = { id, "aria-describedby": `${id}-doc${loud ? ` ${id}-error` : ""}`, "aria-invalid": loud ? "true" : null };
    const set = (event) => {
      values.set(each.name, event.target.value);
      unseen.delete(each.name);
      changed(each.name);
    };
    const fallback = each.default_value === null ? "" : each.default_value;
    if (each.type === "BOOLEAN") {
      return h("select", { ...shared, onchange: set }, options([["", `${fallback || "not set"} (default)`], ["true"], ["false"]], value));
    }
    const suggested = recommended.get(each.name) ?? [];
    const secret = each.type === "PASSWORD" || isSecret(each.name, "", each, rules);
    return [
      h("input", { ...shared, value, oninput: set, spellcheck: "false", autocomplete: "off", type: secret ? "password" : "text",
        inputmode: ["INT", "LONG", "SHORT", "DOUBLE"].includes(each.type) ? "decimal" : null, list: suggested.length ? `${id}-list` : null,
        placeholder: unseen.has(each.name) ? "[hidden], unchanged" : fallback }),
      suggested.length > 0 && h("datalist", { id: `${id}-list` }, suggested.map((each) => h("option", { value: each }))),
    ];
  }

  return form;
}
