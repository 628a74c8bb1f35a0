// The worker group: its members, the leader, and the tasks of each worker.

import { figures, grid, h } from "./dom.js";
import { get, worker } from "./rest.js";
import { number } from "./texts.js";

export function workersView() {
  async function refresh() {
    const [{ workers }, found] = await Promise.all([worker(true), get("connectors?expand=status")]);
    const places = new Map(workers.map((each) => [each.worker_id, { ...each, connectors: [], tasks: 0, failed: 0, waiting: 0 }]));
    const place = (id) => {
      if (!places.has(id)) places.set(id, { worker_id: id, connectors: [], tasks: 0, failed: 0, waiting: 0, lost: true });
      return places.get(id);
    };
    for (const [name, { status }] of Object.entries(found)) {
      if (!status) continue;
      for (const item of [status.connector, ...status.tasks]) {
        if (!item.worker_id || (item.state !== "RUNNING" && item.state !== "FAILED" && item.state !== "PAUSED")) continue;
        const at = place(item.worker_id);
        if (item === status.connector) at.connectors.push(name);
        else at.tasks += 1;
        at.failed += Number(item.state === "FAILED");
        at.waiting += Number(Boolean(item.waiting));
      }
    }
    const rows = [...places.values()];
    const sum = (of) => rows.reduce((total, row) => total + of(row), 0);
    view.show(h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Workers")),
      figures([["workers", number(workers.length)], ["connectors with a worker", number(sum((row) => row.connectors.length))],
        ["tasks", number(sum((row) => row.tasks))], ["failed", number(sum((row) => row.failed)), sum((row) => row.failed) ? "bad" : ""]]),
      grid({
        caption: "Workers with their connectors and tasks", rows, key: (row) => row.worker_id, empty: "No workers are known.",
        columns: [
          ["Worker", "", (row) => row.here || !row.url ? row.worker_id : h("a", { href: `${row.url.replace(/\/$/, "")}/ui`, rel: "noreferrer" }, row.worker_id)],
          ["", "", (row) => [row.leader && h("span", { class: "tag" }, "leader"), " ", row.here && h("span", { class: "tag" }, "this one"), row.lost && h("span", { class: "tag" }, "not in the group")]],
          ["Connectors", "number", (row) => number(row.connectors.length)],
          ["Tasks", "number", (row) => number(row.tasks)],
          ["Failed", "number", (row) => number(row.failed)],
          ["Waiting", "number", (row) => number(row.waiting)],
          ["Which connectors", "remark", (row) => row.connectors.length === 0 ? "" : h("details", { key: `names-${row.worker_id}` },
            h("summary", {}, row.connectors.slice(0, 3).join(", ") + (row.connectors.length > 3 ? ` and ${row.connectors.length - 3} more` : "")),
            row.connectors.slice(0, 300).map((name) => h("p", {}, h("a", { href: `#/connectors/${encodeURIComponent(name)}` }, name))))],
        ],
      }));
  }

  const view = { title: "Workers", seconds: 5, refresh };
  return view;
}
