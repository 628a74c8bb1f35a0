// Creates a connector. The user selects a plugin and enters values for its keys, which the worker validates. The connector may be created stopped.

import { copyButton, h, notice, options } from "./dom.js";
import { configForm, definitionsOf } from "./config_form.js";
import { ask, get, shownValue, worker } from "./rest.js";

export function createView(asked) {
  let plugins = [], plugin = asked.get("plugin") ?? "", name = "", form = null, rules = null, definitions = [], nameWrong = "";

  async function refresh() {
    [plugins, rules] = await Promise.all([get("connector-plugins"), worker()]);
    draw();
    if (plugin) await choose(plugin);
  }

  async function choose(wanted) {
    plugin = wanted;
    form = null;
    const found = wanted ? await definitionsOf(wanted).catch((error) => unchoose(wanted, error)) : [];
    if (plugin !== wanted) return;  // the user selected another plugin while the worker was responding
    definitions = found;
    if (plugin) {
      form = configForm({ name: () => name, plugin, definitions, rules, onchange: review });
      draw();
      await form.check();
    } else draw();
  }

  // Lets the user select the plugin again.
  function unchoose(wanted, error) {
    if (plugin === wanted) {
      plugin = "";
      draw();
    }
    throw error;
  }

  let output = null;  // the JSON output of the rendered form
  function review() {
    if (form) output.textContent = JSON.stringify(shown(), null, 2);
  }

  function shown() {
    const known = new Map(definitions.map((each) => [each.name, each]));
    const config = Object.entries(form.config()).filter(([key]) => key !== "name");
    return { name, config: Object.fromEntries(config.map(([key, value]) => [key, shownValue(key, value, known.get(key), rules)])) };
  }

  // Rendered when the plugin changes; the form renders itself.
  function draw() {
    if (!view.isCurrent()) return;
    output = h("pre", { tabindex: "0" });
    const heading = h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "New connector"));
    const choice = h("div", { class: "card fields" },
      h("div", { class: "field" }, h("label", { for: "plugin" }, "Plugin"),
        h("select", { id: "plugin", onchange: (event) => choose(event.target.value) },
          options([["", "Choose…"], ...plugins.map((each) => [each.class, `${each.class.split(".").at(-1)} (${each.type}) · ${each.class}`])], plugin))),
      h("div", { class: "field" }, h("label", { for: "name" }, "Name", h("span", { class: "required" }, " required")),
        h("input", { id: "name", value: name, autocomplete: "off", spellcheck: "false", "aria-describedby": "name-error", oninput: (event) => { name = event.target.value.trim(); nameError(""); review(); } }),
        h("p", { class: "error", id: "name-error", role: "alert" }, nameWrong)));
    const main = h("main", { id: "main" }, heading, choice, form && [
      form.element(),
      h("details", { class: "card" }, h("summary", {}, "As JSON, secrets hidden; or use your own JSON"), output,
        h("div", { class: "actions" }, copyButton("Copy", () => output.textContent)),
        h("label", { for: "pasted" }, "JSON of a connector"), pasted(),
        h("div", { class: "actions" }, h("button", { type: "button", onclick: takePasted }, "Fill in the form"))),
      h("div", { class: "bars card" },
        h("button", { type: "button", class: "main", onclick: () => create("RUNNING") }, "Create and start"),
        h("button", { type: "button", onclick: () => create("STOPPED") }, "Create stopped, and preview"),
        h("p", { class: "hint small" }, "A stopped connector reads no records. Its preview shows the rows that it would write.")),
    ]);
    const { id, selectionStart } = document.activeElement;
    document.getElementById("main").replaceChildren(...main.childNodes);
    if (id === "name" || id === "plugin") document.getElementById(id).focus();
    if (id === "name") document.getElementById(id).setSelectionRange(selectionStart, selectionStart);
    if (form) review();
  }

  function nameError(text) {
    nameWrong = text;
    if (!view.isCurrent()) return;
    document.getElementById("name-error").textContent = text;
    document.getElementById("name").setAttribute("aria-invalid", String(Boolean(text)));
  }

  const pasted = () => h("textarea", { id: "pasted", spellcheck: "false", placeholder: '{"name": "orders-sink", "config": {…}}' });

  async function takePasted() {
    try {
      const given = JSON.parse(document.getElementById("pasted").value);
      const config = given.config ?? given;
      const chosen = config["connector.class"];
      const fits = plugins.find((each) => each.class === chosen || each.class.split(".").at(-1) === chosen || `${chosen}Connector` === each.class.split(".").at(-1));
      if (chosen && !fits) throw new Error(`There is no plugin ${chosen}`);
      name = given.name ?? config.name ?? name;
      if (fits && fits.class !== plugin) await choose(fits.class);
      else draw();
      await form?.take(config);
    } catch (error) {
      notice(error.message, true);
    }
  }

  async function create(state) {
    if (!name) {
      nameError("A connector needs a name");
      document.getElementById("name").focus();
      return;
    }
    if (!form) return notice("The worker has not returned this plugin's keys yet", true);
    const filled = form;
    await filled.submit(async (config) => {
      if (form !== filled) return;  // the user selected another plugin while the worker was checking
      try {
        await ask("POST", "connectors", { name, config, initial_state: state });
        notice(`${name} is created`);
        if (view.isCurrent()) location.hash = `#/connectors/${encodeURIComponent(name)}/${state === "STOPPED" && /iceberg/i.test(plugin) ? "preview" : "overview"}`;
      } catch (error) {
        if (error.status === 409) nameError(error.message);
        else notice(error.message, true);
      }
    });
  }

  const view = { title: "New connector", seconds: 0, refresh };
  return view;
}
