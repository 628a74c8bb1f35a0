// The configuration of a connector, without secrets. It is edited in the form for new connectors.

import { copyButton, grid, h, notice } from "./dom.js";
import { configForm, definitionsOf } from "./config_form.js";
import { ask, path, shownValue, worker } from "./rest.js";

export function configTab({ name, redraw, again }) {
  let rules = null, definitions = [], form = null, loaded = false;

  async function refresh(info) {
    if (loaded) return;
    [rules, definitions] = await Promise.all([worker(), definitionsOf(info.config["connector.class"]).catch(() => [])]);
    loaded = true;
  }

  function edit(info) {
    form = configForm({ name: () => name, plugin: info.config["connector.class"], definitions, given: info.config, rules });
    redraw();
    document.querySelector("[data-key=form]").replaceChildren(form.element());
    form.check();
  }

  async function save() {
    const filled = form;
    await filled.submit(async (config) => {
      if (form !== filled) return;  // canceled while the worker was checking
      try {
        await ask("PUT", path`connectors/${name}/config`, config);
        notice(`${name} has its new configuration`);
        if (form === filled) form = null;
      } catch (error) {
        notice(error.message, true);
      }
      await again();
    });
  }

  function draw(info) {
    if (form) {
      return [
        h("div", { key: "form", "data-still": true }),
        h("div", { class: "bars card", key: "buttons" },
          h("button", { type: "button", class: "main", onclick: save }, "Save and restart"),
          h("button", { type: "button", onclick: () => { form = null; redraw(); } }, "Cancel")),
      ];
    }
    const known = new Map(definitions.map((each) => [each.name, each]));
    const value = (key) => rules ? shownValue(key, info.config[key], known.get(key), rules) : "";
    const rows = Object.keys(info.config).sort();
    const json = () => JSON.stringify({ name, config: Object.fromEntries(rows.filter((key) => key !== "name").map((key) => [key, value(key)])) }, null, 2);
    return [
      h("div", { class: "actions", key: "edit" }, h("button", { type: "button", class: "main", disabled: !rules, onclick: () => edit(info) }, "Edit"), copyButton("Copy as JSON, secrets hidden", json)),
      grid({
        caption: "Configuration", rows, key: (row) => row, empty: "",
        columns: [["Key", "mono", (row) => row], ["Value", "mono wide", value], ["What it means", "remark", (row) => h("span", { class: "clip" }, known.get(row)?.documentation ?? "")]],
      }),
    ];
  }

  return { refresh, draw };
}
