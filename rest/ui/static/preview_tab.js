// A trial run of the connector with records from its topics. Calls the operation `try`.

import { grid, h, options } from "./dom.js";
import { operate } from "./rest.js";
import { number, plural } from "./texts.js";

export function previewTab({ name, redraw }) {
  let found = null, failed = "", busy = false, records = "200", newest = "false";

  async function run() {
    [busy, failed] = [true, ""];
    redraw();
    try {
      found = await operate(name, "try", { records: Number(records), newest: newest === "true" });
    } catch (error) {
      [found, failed] = [null, error.message];
    }
    busy = false;
    redraw();
  }

  function draw() {
    return [
      h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); run(); } },
        h("p", { class: "hint" }, "Reads, converts, transforms, and routes some records, and shows the resulting rows of each table. Nothing is written or committed."),
        h("div", { class: "bars" },
          h("label", {}, "Records ", h("select", { value: records, onchange: (event) => { records = event.target.value; } }, options([["50"], ["200"], ["1000"], ["2000"]], records))),
          h("label", {}, "From ", h("select", { onchange: (event) => { newest = event.target.value; } }, options([["false", "the oldest"], ["true", "the newest"]], newest))),
          h("button", { class: "main", disabled: busy }, busy ? "Reading…" : "Preview"))),
      failed && h("div", { class: "card bad", role: "alert" }, h("p", {}, failed)),
      found && result(),
    ];
  }

  function result() {
    const unrouted = Object.entries(found.unrouted);
    return [
      h("p", { role: "status" }, `${plural(found.records, "record")} of ${found.topics.join(", ")}: ${plural(found.bad_count, "bad record")}.`),
      found.tables.map((table) => h("section", { class: `card ${table.refused ? "bad" : ""}`, key: table.table, "aria-label": table.table },
        h("div", { class: "head" }, h("h2", { class: "mono" }, table.table), h("span", { class: "tag" }, table.refused ? "cannot be written" : table.exists ? "exists" : "would be created"),
          h("span", { class: "hint" }, `${plural(table.rows, "row")}, ${table.mode}`)),
        table.refused && h("p", {}, table.refused),
        table.create && h("pre", { tabindex: "0" }, table.create),
        table.changes.map((change) => h("p", {}, h("span", { class: "tag" }, change.action), ` ${change.change} (${plural(change.rows, "row")})`)),
        table.samples.length > 0 && samples(table.samples))),
      unrouted.length > 0 && h("div", { class: "card warn" }, unrouted.map(([topic, count]) => h("p", {}, `${topic}: ${plural(count, "record")} go to no table`))),
      found.bad.length > 0 && grid({
        caption: `Bad records (${number(found.bad_count)})`, rows: found.bad, empty: "", key: (row) => `${row.topic}/${row.partition}/${row.offset}`,
        columns: [
          ["Record", "mono", (row) => `${row.topic}/${row.partition}/${row.offset}`], ["Reason", "", (row) => row.reason],
          ["Error", "remark", (row) => row.error],
        ],
      }),
    ];
  }

  function samples(rows) {
    const columns = [...new Set(rows.flatMap(Object.keys))];
    const text = (value) => value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
    return h("div", { class: "scroll" }, h("table", {}, h("caption", { class: "visually-hidden" }, "Some rows"),
      h("thead", {}, h("tr", {}, columns.map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((each) => h("td", { class: "mono" }, text(row[each]))))))));
  }

  return { draw };
}
