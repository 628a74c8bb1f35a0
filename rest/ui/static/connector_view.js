// One connector: its activity, its problems, and their remedies.

import { confirm, figures, grid, h, notice, options, pill } from "./dom.js";
import { ask, get, operate, path } from "./rest.js";
import { linePlot } from "./line_plot.js";
import { look } from "./samples.js";
import { overall, remark } from "./states.js";
import { ago, duration, firstLine, number } from "./texts.js";
import { configTab } from "./config_tab.js";
import { deadLettersTab } from "./dead_letters_tab.js";
import { offsetsTab } from "./offsets_tab.js";
import { previewTab } from "./preview_tab.js";
import { tableTab } from "./table_tab.js";

const TABS = [["overview", "Overview"], ["dead-letters", "Dead-letter records"], ["preview", "Preview"], ["offsets", "Offsets"], ["config", "Configuration"]];
const OF_SINK = new Set(["dead-letters", "preview"]);
const MAKERS = { "dead-letters": deadLettersTab, preview: previewTab, offsets: offsetsTab, config: configTab, table: tableTab };
const EVOLUTION = {
  "add column": "iceberg.ext.evolution.add-column", widen: "iceberg.ext.evolution.widen",
  make: "iceberg.ext.evolution.make-optional", rename: "iceberg.ext.evolution.rename",
};

export function connectorView(name, tab, argument) {
  let info = null, now = null, part = null, turns = 0;
  const address = `#/connectors/${encodeURIComponent(name)}`;

  async function refresh() {
    const turn = turns += 1;
    const found = await get(path`connectors/${name}`);
    const seen = await look(name).catch((error) => {
      if (error.status !== 404) throw error;
      return { status: { connector: { state: "UNASSIGNED", worker_id: "" }, tasks: [], type: found.type }, samples: [], tables: new Map(), deadLetters: [] };
    });
    if (turn !== turns) return;  // a newer response has been rendered
    [info, now] = [found, seen];
    const isIceberg = /iceberg/i.test(info.config["connector.class"] ?? "");
    if (!part && MAKERS[tab]) part = MAKERS[tab]({ name, info, argument, address, isIceberg, redraw: draw, again: () => view.again() });
    if (part?.refresh) await part.refresh(info, now);
    draw();
  }

  function draw() {
    const isIceberg = /iceberg/i.test(info.config["connector.class"] ?? "");
    view.show(head(now), tabs(isIceberg), ...(part ? [part.draw(info, now)].flat() : overview(now, isIceberg)));
  }

  function head({ status }) {
    const state = overall(status), target = status.connector.state;
    const button = (label, does, kind) => h("button", { type: "button", class: kind, key: label, onclick: does }, label);
    return h("div", { class: "head" },
      h("h1", { tabindex: "-1" }, name), pill(state),
      h("span", { class: "hint small" }, `${info.type} · ${(info.config["connector.class"] ?? "").split(".").at(-1)}`),
      h("div", { class: "actions" },
        target === "PAUSED" || target === "STOPPED"
          ? button("Resume", resume, "main")
          : [button("Pause", pause), button("Stop", stop)],
        target !== "STOPPED" && button("Restart", restart),
        button("Delete", remove, "danger")));
  }

  function tabs(isIceberg) {
    const links = TABS.filter(([id]) => isIceberg || !OF_SINK.has(id));
    const shown = tab === "table" ? [["overview", "Overview"], ["table", argument], ...links.slice(1)] : links;
    return h("nav", { class: "tabs", "aria-label": "Parts" }, shown.map(([id, label]) => h("a", {
      key: id, href: id === "table" ? `${address}/table/${encodeURIComponent(argument)}` : `${address}/${id}`,
      "aria-current": id === tab ? "page" : null,
    }, label)));
  }

  // ---------------------------------------------------------------- overview

  function overview(now, isIceberg) {
    const { status, tables, records, deadLetters, samples } = now;
    const lags = [...tables.values()].map((table) => table.lag).filter((lag) => lag !== undefined);
    const worst = lags.length ? Math.max(...lags) : undefined;
    const dead = deadLetters.reduce((total, each) => total + each.count, 0);
    const changes = [...tables.values()].flatMap((table) => table.changes.map((change) => ({ table: table.name, change })));
    const list = [...tables.values()].filter((table) => table.name !== info.config["errors.deadletterqueue.iceberg.table"]);
    return [
      problems(status),
      changes.length > 0 && pendingChanges(changes),
      info.type === "sink" && figures([
        isIceberg && ["oldest table", duration(worst), worst > 600 ? "warn" : ""],
        ["records to read", number(records)],
        isIceberg && ["rows added since the start", number(list.reduce((total, each) => total + (each.added || 0), 0))],
        ["dead letters since the start", number(dead), dead ? "warn" : ""],
      ]),
      tasks(status),
      isIceberg && grid({
        caption: "Tables", rows: list.sort((a, b) => a.name < b.name ? -1 : 1), key: (row) => row.name,
        empty: "No table has been committed to since the tasks started.",
        columns: [
          ["Table", "", (row) => h("a", { href: `${address}/table/${encodeURIComponent(row.name)}` }, row.name)],
          ["Age", "number", (row) => duration(row.lag)],
          ["Last commit", "number", (row) => ago(row.lastCommit)],
          ["Commits", "number", (row) => number(row.commits)],
          ["Rows added", "number", (row) => number(row.added)],
          ["Replaced", "number", (row) => number(row.replaced)],
          ["", "", (row) => [row.unpublished && h("span", { class: "tag" }, "unpublished commits"), row.changes.length > 0 && h("span", { class: "tag" }, "change on hold"), row.excesses.map((objects) => h("span", { class: "tag" }, `too many ${objects}`)), row.waiting.map((reason) => h("span", { class: "tag" }, `waits: ${reason}`))]],
        ],
      }),
      info.type === "sink" && h("div", { class: "grid2" },
        isIceberg && linePlot({
          title: "Age of the tables while this page was open", format: duration,
          series: list.slice(0, 2).map((table) => ({ name: table.name, points: samples.filter((each) => each.lags.get(table.name) !== undefined).map((each) => [each.at, each.lags.get(table.name)]) })),
        }),
        linePlot({
          title: "Records to read while this page was open", format: number,
          series: [{ name: "records", points: samples.filter((each) => each.records !== undefined).map((each) => [each.at, each.records]) }],
        })),
    ].filter(Boolean);
  }

  function problems(status) {
    const items = [["Connector", status.connector], ...status.tasks.map((task) => [`Task ${task.id}`, task])];
    const found = items.filter(([, item]) => item.trace || item.waiting || item.stopped);
    return found.length > 0 && h("div", { class: "bad-news", key: "problems" }, found.slice(0, 20).map(([what, item]) =>
      h("section", { class: `card ${item.state === "FAILED" ? "bad" : "warn"}`, key: what, "aria-label": what },
        h("div", { class: "head" }, h("h2", {}, what), pill(item.state === "FAILED" ? "FAILED" : item.waiting ? "WAITING" : item.state),
          item.waiting && h("span", { class: "hint small" }, `since ${ago(Date.parse(item.waiting.since)).replace(" ago", "")}`),
          item.state === "FAILED" && what !== "Connector" && h("div", { class: "actions" },
            h("button", { type: "button", onclick: () => restartTask(item.id) }, `Restart ${what.toLowerCase()}`))),
        h("p", {}, remark(item)),
        item.trace && h("details", {}, h("summary", {}, "Trace"), h("pre", { tabindex: "0" }, item.trace)))));
  }

  function tasks(status) {
    return grid({
      caption: "Tasks", rows: status.tasks, key: (row) => String(row.id), empty: "It has no tasks now.",
      columns: [
        ["Task", "", (row) => String(row.id)],
        ["State", "", (row) => pill(row.waiting && row.state === "RUNNING" ? "WAITING" : row.state)],
        ["Worker", "", (row) => row.worker_id],
        ["Version", "", (row) => row.version ?? ""],
        ["Message", "remark", (row) => h("span", { class: "clip" }, firstLine(remark(row)))],
        ["", "number", (row) => h("button", { type: "button", class: "quiet", "aria-label": `Restart task ${row.id}`, onclick: () => restartTask(row.id) }, "Restart")],
      ],
    });
  }

  function pendingChanges(changes) {
    return h("section", { class: "card warn", key: "changes", "aria-label": "Table changes that wait for you" },
      h("h2", {}, "Table changes that wait for you"),
      h("p", { class: "hint" }, "Rows wait because the configuration leaves such changes to a person."),
      changes.map(({ table, change }) => h("div", { class: "bars", key: table + change },
        h("code", {}, table), h("span", {}, change),
        h("span", { class: "actions end" },
          h("button", { type: "button", class: "main", onclick: () => approve(table, change) }, "Approve"),
          h("button", { type: "button", onclick: () => refuse(table, change) }, "Reject")))));
  }

  async function approve(table, change) {
    const answer = await confirm({
      title: "Change the table", action: "Approve", text: [`${table}: ${change}.`, "Waiting rows are processed automatically. This page cannot undo a table change."],
    });
    if (!answer) return;
    await does(() => operate(name, "change-table", { table, change }), `${table}: ${change}`);
  }

  async function refuse(table, change) {
    const beside = / beside .*, which cannot take such values$/.test(change);
    const key = beside ? "iceberg.ext.evolution.incompatible" : EVOLUTION[Object.keys(EVOLUTION).find((each) => change.startsWith(each))];
    const choice = h("select", {}, options([["ignore", "the table stays unchanged; values must match its columns, other fields are omitted"], ["dead-letter", "rows that need the change become dead-letter records"]]));
    const answer = await confirm({
      title: "Reject the change", action: "Reject", text: [`${table}: ${change}.`, `This sets ${key} of connector ${name}, for all of its tables, and restarts its tasks.`],
      fields: [{ label: "What happens to the rows", input: choice }],
    });
    if (!answer) return;
    await does(() => ask("PATCH", path`connectors/${name}/config`, { [key]: answer[0] }), `${key}=${answer[0]}`);
  }

  // ---------------------------------------------------------------- actions

  async function does(action, done) {
    try {
      await action();
      notice(done);
    } catch (error) {
      notice(error.message, true);
    }
    await view.again();
  }

  async function asked(title, text, action, danger = false) {
    return (await confirm({ title: `${title} ${name}`, text, action, danger })) !== null;
  }

  async function pause() {
    if (await asked("Pause", "Its tasks stay assigned to their partitions, but read no records until you resume it.", "Pause")) {
      await does(() => ask("PUT", path`connectors/${name}/pause`), `${name} pauses`);
    }
  }

  async function resume() {
    await does(() => ask("PUT", path`connectors/${name}/resume`), `${name} goes on`);
  }

  async function stop() {
    if (await asked("Stop", "Its tasks end. Offsets and configuration are retained, and you can resume it.", "Stop")) {
      await does(() => ask("PUT", path`connectors/${name}/stop`), `${name} stops`);
    }
  }

  async function restart() {
    if (await asked("Restart", "The connector and all of its tasks restart and resume at the committed offsets.", "Restart")) {
      await does(() => ask("POST", path`connectors/${name}/restart?includeTasks=true&onlyFailed=false`), `${name} restarts`);
    }
  }

  async function restartTask(task) {
    if (await asked(`Restart task ${task} of`, "The task restarts and resumes at the committed offsets.", "Restart")) {
      await does(() => ask("POST", path`connectors/${name}/tasks/${String(task)}/restart`), `Task ${task} restarts`);
    }
  }

  async function remove() {
    const typed = h("input", { autocomplete: "off", spellcheck: "false" });
    const answer = await confirm({
      title: `Delete ${name}`, action: "Delete", danger: true,
      text: ["Its tasks end and its configuration is removed. Tables, topics, and offsets are retained."],
      fields: [{ label: "Type the name of the connector", input: typed }],
    });
    if (!answer) return;
    if (answer[0] !== name) {
      notice("That is not the name: nothing was deleted", true);
      return;
    }
    try {
      await ask("DELETE", path`connectors/${name}`);
      notice(`${name} is deleted`);
      location.hash = "#/";
    } catch (error) {
      notice(error.message, true);
    }
  }

  const view = { title: name, seconds: 3, refresh };
  return view;
}

