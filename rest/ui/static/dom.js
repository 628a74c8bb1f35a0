// Elements built from data. Strings are never parsed as HTML, because names, traces, and records are untrusted.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "oninput", "onchange", "onsubmit", "onkeydown", "onpointermove", "onpointerleave"];

export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on") || name === "value" || name === "checked" || name === "selected") element[name] = value;
    else if (name === "key") element.dataset.key = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

// Updates `old` to match `fresh` without touching equal nodes, which preserves focus, selection, and scroll position.
export function morph(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  const open = old.nodeName === "DETAILS" || old.nodeName === "DIALOG";
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(open && name === "open")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !(open && name === "open")) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
  if ("value" in old && old.nodeName !== "LI" && old.value !== fresh.value && document.activeElement !== old) {
    old.value = fresh.value;
  }
  if ("checked" in old && old.checked !== fresh.checked) old.checked = fresh.checked;
  // A part that renders itself is left unchanged.
  if (old.nodeName !== "TEXTAREA" && fresh.dataset.still === undefined) morphChildren(old, fresh);
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = wanted.dataset?.key;
    const found = key === undefined ? at : keyed.get(key);
    const fits = found && found.nodeName === wanted.nodeName && found.dataset?.key === key;
    if (!fits) {
      old.insertBefore(wanted, at);
      continue;
    }
    if (found === at) at = at.nextSibling;
    else old.insertBefore(found, at);
    morph(found, wanted);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

export function notice(text, bad = false) {
  const line = h("p", { class: bad ? "bad" : "" }, text);
  document.getElementById("notices").append(line);
  setTimeout(() => line.remove(), bad ? 15000 : 6000);
}

// Asks for confirmation. Resolves to the values of the fields, or to null if the user cancels.
export function confirm({ title, text, action, danger = false, fields = [] }) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) => field.input);
    const done = (answer) => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" },
      h("form", { onsubmit: (event) => { event.preventDefault(); done(inputs.map((each) => each.value)); } },
        h("h2", { id: "dialog-title" }, title),
        [].concat(text).map((line) => h("p", {}, line)),
        fields.map(({ label, input }, at) => {
          input.id = `dialog-field-${at}`;
          return h("div", { class: "field" }, h("label", { for: input.id }, label), input);
        }),
        h("div", { class: "actions" },
          h("button", { type: "button", onclick: () => done(null) }, "Cancel"),
          h("button", { class: danger ? "danger" : "main" }, action))));
    dialog.addEventListener("cancel", (event) => { event.preventDefault(); done(null); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function options(values, chosen) {
  return values.map(([value, label]) => h("option", { value, selected: value === chosen }, label ?? value));
}

export function copyButton(label, text) {
  return h("button", { type: "button", onclick: async () => {
    if (navigator.clipboard) await navigator.clipboard.writeText(text());
    else copySelected(text());
    notice("Copied");
  } }, label);
}

// Over plain HTTP, browsers do not offer the clipboard to pages, but can copy a selection.
function copySelected(text) {
  const focused = document.activeElement, area = h("textarea", { value: text });
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  if (!copied) throw new Error("The browser does not let this page copy");
}

export function pill(state) {
  const kinds = { RUNNING: "good", FAILED: "bad", WAITING: "warn", UNASSIGNED: "warn", RESTARTING: "warn" };
  return h("span", { class: `pill ${kinds[state] ?? "idle"}` }, state.charAt(0) + state.slice(1).toLowerCase());
}

export function figures(list) {
  return h("dl", { class: "figures" }, list.filter(Boolean).map(([label, value, kind]) =>
    h("div", { key: label }, h("dt", {}, label), h("dd", { class: kind }, value))));
}

// A table whose columns are [heading, class, cell].
export function grid({ caption, hidden = false, columns, rows, key, empty }) {
  if (!rows.length) return h("div", { class: "card" }, caption && !hidden && h("h2", {}, caption), h("p", { class: "hint" }, empty));
  return h("div", { class: "card flush scroll" },
    h("table", {},
      h("caption", { class: hidden ? "visually-hidden" : "" }, caption),
      h("thead", {}, h("tr", {}, columns.map(([heading, kind]) => h("th", { scope: "col", class: kind }, heading)))),
      h("tbody", {}, rows.map((row, number) => h("tr", { key: key ? key(row) : String(number) },
        columns.map(([, kind, cell], at) => at === 0
          ? h("th", { scope: "row", class: kind }, cell(row))
          : h("td", { class: kind }, cell(row))))))));
}
