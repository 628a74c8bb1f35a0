// The list of all connectors, filtered by name and state, with 100 connectors per page.

import { confirm, grid, h, notice, pill } from "./dom.js";
import { ask, get, path } from "./rest.js";
import { firstRemark, overall, taskCounts } from "./states.js";
import { number, plural } from "./texts.js";

const STATES = ["FAILED", "WAITING", "UNASSIGNED", "RUNNING", "PAUSED", "STOPPED"];
const SHOWN = 100;

export function connectorsView(asked) {
  let rows = [], text = asked.get("name") ?? "", state = asked.get("state") ?? "", page = 0;

  async function refresh() {
    const found = await get("connectors?expand=status");
    rows = Object.entries(found).map(([name, { status }]) => ({ name, status, state: overall(status) }));
    rows.sort((a, b) => a.name < b.name ? -1 : 1);
    draw();
  }

  function draw() {
    const wanted = text.toLowerCase();
    const named = rows.filter((row) => row.name.toLowerCase().includes(wanted));
    const chosen = state ? named.filter((row) => row.state === state) : named;
    const pages = Math.max(1, Math.ceil(chosen.length / SHOWN));
    page = Math.min(page, pages - 1);
    view.show(
      h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Connectors"),
        h("div", { class: "actions" }, h("a", { class: "button main", href: "#/create" }, "New connector"))),
      rows.length > 0 && filters(named),
      rows.length === 0 ? start() : grid({
        caption: "Connectors", hidden: true, rows: chosen.slice(page * SHOWN, (page + 1) * SHOWN),
        key: (row) => row.name, empty: "No connector matches.",
        columns: [
          ["Name", "", (row) => h("a", { href: `#/connectors/${encodeURIComponent(row.name)}` }, row.name)],
          ["State", "", (row) => pill(row.state)],
          ["Kind", "", (row) => row.status?.type ?? ""],
          ["Tasks", "", (row) => row.status ? taskCounts(row.status.tasks) : ""],
          ["Worker", "", (row) => row.status?.connector.worker_id ?? ""],
          ["Message", "remark", (row) => h("span", { class: "clip" }, row.status ? firstRemark(row.status) : "")],
        ],
      }),
      pages > 1 && h("nav", { class: "bars", "aria-label": "Pages" },
        h("button", { type: "button", disabled: page === 0, onclick: () => turn(-1) }, "Previous"),
        h("span", { class: "hint" }, `${number(page * SHOWN + 1)} to ${number(Math.min(chosen.length, (page + 1) * SHOWN))} of ${number(chosen.length)}`),
        h("button", { type: "button", disabled: page >= pages - 1, onclick: () => turn(1) }, "Next")));
  }

  function turn(by) {
    page += by;
    draw();
  }

  function filters(named) {
    const failed = rows.filter((row) => row.state === "FAILED");
    return h("div", { class: "bars", role: "group", "aria-label": "Which connectors" },
      h("input", { type: "search", "aria-label": "Name contains", placeholder: "Name contains…", value: text,
        oninput: (event) => { text = event.target.value; page = 0; draw(); } }),
      h("button", { type: "button", "aria-pressed": String(!state), onclick: () => choose("") }, `All ${number(named.length)}`),
      STATES.map((each) => [each, named.filter((row) => row.state === each).length])
        .filter(([each, count]) => count || each === state)
        .map(([each, count]) => h("button", { type: "button", key: each, "aria-pressed": String(state === each), onclick: () => choose(each) },
          `${each.charAt(0)}${each.slice(1).toLowerCase()} ${number(count)}`)),
      failed.length > 0 && h("button", { type: "button", class: "end", key: "restart", onclick: () => restart(failed) }, "Restart what failed"));
  }

  function choose(each) {
    state = each;
    page = 0;
    draw();
  }

  async function restart(failed) {
    const answer = await confirm({
      title: "Restart what failed", action: "Restart",
      text: [`${plural(failed.length, "connector")}: the connector and its tasks, as far as they failed.`, failed.slice(0, 8).map((row) => row.name).join(", ") + (failed.length > 8 ? " …" : "")],
    });
    if (!answer) return;
    const refused = [];
    for (const { name } of failed) {
      await ask("POST", path`connectors/${name}/restart?includeTasks=true&onlyFailed=true`).catch((error) => refused.push(`${name}: ${error.message}`));
    }
    notice(`Restarted ${plural(failed.length - refused.length, "connector")}`);
    if (refused.length) notice(`Not restarted: ${refused.slice(0, 5).join("; ")}${refused.length > 5 ? " …" : ""}`, true);
    await view.again();
  }

  function start() {
    return h("div", { class: "card" }, h("h2", {}, "No connectors yet"),
      h("p", { class: "hint" }, "A connector moves records between Kafka and another system. Create one from a form, or post JSON:"),
      h("pre", {}, `curl -X POST -H 'Content-Type: application/json' -d @connector.json ${new URL("../connectors", import.meta.url).href}`),
      h("p", {}, h("a", { class: "button main", href: "#/create" }, "New connector")));
  }

  const view = { title: "Connectors", seconds: 5, refresh };
  return view;
}
