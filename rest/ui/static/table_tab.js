// One table: the commits in its history, freshness, files, deletes, and maintenance.

import { confirm, copyButton, figures, grid, h, notice, options } from "./dom.js";
import { linePlot } from "./line_plot.js";
import { operate } from "./rest.js";
import { ago, bytes, clock, duration, number, plural } from "./texts.js";

const LOOK_SECONDS = 15;

export function tableTab({ name, argument: table, again }) {
  let found = null, done = null, gate = null, failed = "", asked = 0, asking = false, turn = 0;

  // The catalog is read through Spark and therefore refreshed less often than the worker's data.
  function refresh(info, now) {
    const state = now.status.connector.state;
    if (asking || Date.now() - asked < LOOK_SECONDS * 1000 || (asked && state === "STOPPED")) return;
    asking = true;
    const own = turn;
    Promise.allSettled([operate(name, "table", { table, limit: 200 }), operate(name, "maintenance", { table }), operate(name, "unpublished", { table })])
      .then(([one, two, three]) => {
        if (own !== turn) return;  // a decision was made in the meantime
        found = one.value ?? found;
        done = two.value ?? done;
        gate = three.value ? three.value.tables[table] ?? null : gate;
        failed = [...new Set([one, two, three].filter((each) => each.reason).map((each) => each.reason.message))].join("\n");
      })
      .finally(() => {
        if (own !== turn) return;
        asking = false;
        asked = Date.now();
        again();
      });
  }

  function draw(info, { tables, samples, records }) {
    const now = tables.get(table) ?? {};
    const head = found?.snapshots?.[0];
    const rows = head ? head.totals.records - (head.totals["position-deletes"] ?? 0) : undefined;
    return [
      figures([
        ["age", duration(now.lag), now.lag > 600 ? "warn" : ""], ["records to read (connector)", number(records)],
        ["rows", number(rows)], ["last commit", ago(now.lastCommit || (head && Date.parse(head.time)))],
        ["data files", number(head?.totals["data-files"])], ["delete files", number(head?.totals["delete-files"])],
        ["size", bytes(head?.totals["files-size"])],
      ]),
      failed && h("div", { class: "card bad" }, h("p", {}, failed)),
      !found && !failed && h("p", { class: "hint" }, "Asking the catalog…"),
      gate && unpublished(gate),
      found && found.snapshots === null && h("div", { class: "card" }, h("p", { class: "hint" }, "The table does not exist yet.")),
      found?.snapshots && [plots(found.snapshots, samples), commits(found), maintenance(), columns(found)],
    ];
  }

  function plots(snapshots, samples) {
    const line = [...snapshots].reverse().map((each) => ({ ...each, at: Date.parse(each.time) }));
    const fresh = line.filter((each) => each.valid_through).map((each) => [each.at, (each.at - Date.parse(each.valid_through)) / 1000]);
    const total = (key) => line.filter((each) => each.totals[key] !== undefined).map((each) => [each.at, each.totals[key]]);
    const live = samples.filter((each) => each.lags.get(table) !== undefined).map((each) => [each.at, each.lags.get(table)]);
    return h("div", { class: "grid2", key: "plots" },
      linePlot({ title: "Freshness at each commit", series: [{ name: "age", points: fresh }], format: duration, empty: "No commit reports its freshness." }),
      linePlot({ title: "Age while this page was open", series: [{ name: "age", points: live }], format: duration, empty: "The connector is not running." }),
      linePlot({ title: "Rows of each commit", bars: true, format: number, series: [{ name: "in", points: line.map((each) => [each.at, each.rows_in]) }, { name: "out", points: line.map((each) => [each.at, each.rows_out]) }] }),
      linePlot({ title: "Files", step: true, format: number, series: [{ name: "data files", points: total("data-files") }, { name: "delete files", points: total("delete-files") }] }),
      linePlot({ title: "Deleted rows that are still in files", step: true, format: number, series: [{ name: "deletes", points: total("position-deletes") }] }),
      linePlot({ title: "Size of the files", step: true, format: bytes, series: [{ name: "bytes", points: total("files-size") }] }));
  }

  function commits({ snapshots, count }) {
    return grid({
      caption: `Last commits (${plural(Math.min(20, count), "snapshot")} of ${number(count)})`, rows: snapshots.slice(0, 20), key: (row) => row.snapshot,
      empty: "Nothing has been committed yet.",
      columns: [
        ["Time", "", (row) => clock(Date.parse(row.time), true)],
        ["By", "", (row) => row.writer.name],
        ["Operation", "", (row) => row.operation ?? ""],
        ["Engine", "", (row) => row.engine ?? ""],
        ["In", "number", (row) => number(row.rows_in)],
        ["Out", "number", (row) => number(row.rows_out)],
        ["Fresh to", "number", (row) => row.valid_through ? duration((Date.parse(row.time) - Date.parse(row.valid_through)) / 1000) : "–"],
        ["Next offsets", "remark", (row) => h("span", { class: "clip mono" }, Object.entries(row.source_offsets).map(([topic, parts]) => `${topic} ${Object.entries(parts).map(([part, next]) => `${part}:${next}`).join(" ")}`).join("; "))],
        ["Snapshot", "mono", (row) => row.snapshot],
      ],
    });
  }

  function maintenance() {
    const command = `connect-py maintain ${table} --config ${name}.json --dry-run`;
    return h("div", { key: "maintenance" }, grid({
      caption: "Maintenance", rows: done?.operations ?? [], key: (row) => row.started + row.action,
      empty: done?.enabled === "true" ? `The connector maintains this table. ${done.operations_table} has no entry for it yet.` : done?.enabled === "auto" ? "iceberg.ext.maintenance.enabled is auto: small files and snapshots are maintained if the sink created the table; the log lists the actions." : "The connector does not maintain this table: iceberg.ext.maintenance.enabled is false.",
      columns: [
        ["Started", "", (row) => clock(Date.parse(row.started), true)],
        ["Action", "", (row) => row.action],
        ["Reason", "remark", (row) => row.reason ?? ""],
        ["Seconds", "number", (row) => row.seconds?.toFixed(1) ?? "–"],
        ["Data files", "number", (row) => `${number(row.data_files_before)} → ${number(row.data_files_after)}`],
        ["Delete files", "number", (row) => `${number(row.delete_files_before)} → ${number(row.delete_files_after)}`],
        ["By", "", (row) => row.made_by ?? ""],
      ],
    }),
    h("p", { class: "bars hint small" }, "Run due maintenance manually:", h("code", {}, command), copyButton("Copy", () => command)));
  }

  function columns(found) {
    return h("details", { class: "card", key: "columns" }, h("summary", {}, `${plural(found.columns.length, "column")}, format ${found.format_version}, ${found.mode}`),
      h("p", { class: "hint small" }, found.location),
      grid({ caption: "Columns", hidden: true, rows: found.columns, key: (row) => row.name, empty: "", columns: [
        ["Column", "mono", (row) => row.name], ["Type", "mono", (row) => row.type], ["Required", "", (row) => row.required ? "yes" : ""],
      ] }));
  }

  function unpublished(each) {
    return h("section", { class: "card warn", key: "gate", "aria-label": "Unpublished commits" },
      h("h2", {}, `${plural(each.commits, "commit")} that readers do not see`),
      each.failed.map((commit) => h("p", { class: "mono" }, JSON.stringify(commit))),
      h("div", { class: "actions" },
        h("button", { type: "button", class: "main", disabled: !each.can_publish, onclick: () => decide("publish", each) }, "Publish"),
        h("button", { type: "button", onclick: () => decide("reject", each) }, "Throw away")));
  }

  async function decide(operation, each) {
    const choice = h("select", {}, options([["replay", "read its rows again"], ["drop", "read them again, without the rejected rows"], ["dead-letter", "the same, and store the rejected rows as dead-letter records"], ["skip", "continue without these rows"]]));
    const publish = operation === "publish";
    const answer = await confirm({
      title: publish ? "Publish the commits" : "Throw the commits away", action: publish ? "Publish" : "Throw away", danger: !publish,
      text: publish ? "All of their rows become visible to readers." : "Readers never see them.", fields: publish ? [] : [{ label: "The connector should", input: choice }],
    });
    if (!answer) return;
    try {
      await operate(name, operation, { table, head: String(each.head), ...(publish ? {} : { rows: answer[0] }) });
      notice(publish ? "Published" : "Thrown away");
    } catch (error) {
      notice(error.message, true);
    }
    turn += 1;
    [asked, asking] = [0, false];
    await again();
  }

  return { refresh, draw };
}
