// The dead-letter records of the connector's table: errors, contents, and replay.

import { confirm, h, notice, options } from "./dom.js";
import { operate } from "./rest.js";
import { clock, firstLine, number, plural } from "./texts.js";

export function deadLettersTab({ name, redraw, again }) {
  let found = null, failed = "", reason = "", loaded = false, busy = false, turns = 0;
  const chosen = new Set(), fixes = new Map();
  const place = (record) => `${record.topic}/${record.partition}/${record.offset}`;

  async function load() {
    const turn = turns += 1;
    busy = true;
    redraw();
    const answer = await operate(name, "dead-letters", { limit: 100, ...(reason ? { reason } : {}) }).catch((error) => error);
    if (turn !== turns) return;  // the user selected another reason
    busy = false;
    failed = answer instanceof Error ? answer.message : "";
    if (!failed) {
      found = answer;
      const there = new Set(waiting().map(place));
      for (const at of [...chosen]) if (!there.has(at)) chosen.delete(at);
    }
    redraw();
  }

  function refresh() {
    if (loaded) return;
    loaded = true;
    setTimeout(load);
  }

  function draw() {
    const problem = failed && h("div", { class: "card", key: "problem" }, h("p", {}, failed),
      h("p", { class: "hint" }, "With errors.deadletterqueue.iceberg.table the connector keeps bad records as rows of a table, and with errors.deadletterqueue.iceberg.replay.topic they can be tried again."),
      h("div", { class: "actions" }, h("button", { type: "button", disabled: busy, onclick: load }, "Try again")));
    if (!found) return [problem || h("p", { class: "hint" }, "Reading the table of dead letters…")];
    const reasons = [...new Set(found.groups.map((each) => each.reason))];
    return [
      problem,
      groups(),
      found.count > 0 && h("div", { class: "bars", key: "bars" },
        h("label", {}, "Reason ", h("select", { onchange: (event) => { reason = event.target.value; load(); } }, options([["", "all"], ...reasons.map((each) => [each])], reason))),
        h("button", { type: "button", onclick: all, disabled: !waiting().length }, "Choose all that are waiting"),
        h("button", { type: "button", class: "main", disabled: !chosen.size || !found.replay_topic, onclick: replay }, `Replay ${number(chosen.size)}`),
        h("button", { type: "button", class: "quiet end", disabled: busy, onclick: load }, busy ? "Reading…" : "Read again")),
      !found.replay_topic && h("p", { class: "hint", key: "no-topic" }, "Replays need errors.deadletterqueue.iceberg.replay.topic in the configuration."),
      found.records.length > 0 && h("div", { class: "card flush scroll", key: "records" }, h("table", {},
        h("caption", {}, `Newest ${plural(found.records.length, "dead letter")}`),
        h("thead", {}, h("tr", {}, ["", "Record", "State", "Reason", "Error", "Failed at"].map((each, at) => h("th", { scope: "col" }, at === 0 ? h("span", { class: "visually-hidden" }, "Choose") : each)))),
        h("tbody", {}, found.records.map(row)))),
    ];
  }

  function groups() {
    const count = (state) => found.groups.filter((each) => each.state === state).reduce((sum, each) => sum + each.count, 0);
    return h("p", { key: "groups", role: "status" }, `${plural(found.count, "dead letter")} in ${found.table}: ${number(count("new"))} new, ${number(count("failed-again"))} failed again, ${number(count("replayed"))} replayed.`);
  }

  const waiting = () => found.records.filter((record) => record.state !== "replayed");

  function all() {
    for (const record of waiting()) chosen.add(place(record));
    redraw();
  }

  function row(record) {
    const at = place(record);
    return h("tr", { key: `${at}/${record.attempt}` },
      h("td", {}, h("input", { type: "checkbox", "aria-label": `Choose ${at}`, checked: chosen.has(at) && record.state !== "replayed", disabled: record.state === "replayed",
        onchange: (event) => { if (event.target.checked) chosen.add(at); else chosen.delete(at); redraw(); } })),
      h("th", { scope: "row", class: "mono" }, at),
      h("td", {}, record.state), h("td", {}, record._dlq_reason),
      h("td", { class: "remark" }, firstLine(record.error_message ?? record.error_class), details(record, at)),
      h("td", { class: "number" }, record.failed_at ? clock(Date.parse(record.failed_at), true) : "–"));
  }

  function details(record, at) {
    const text = (data) => data === null ? "null" : data.text ?? `base64 ${data.base64}`;
    const editable = record.value?.text !== undefined && record.state !== "replayed" && found.replay_topic;
    return h("details", { key: `${at}-record` }, h("summary", {}, "Record"),
      h("h3", {}, "Key"), h("pre", { tabindex: "0" }, text(record.key)),
      h("h3", {}, editable ? "Value: edit it to replay the new value" : "Value"),
      editable
        ? h("textarea", { "aria-label": `Value of ${at}`, spellcheck: "false", value: fixes.get(at) ?? record.value.text, oninput: (event) => { fixes.set(at, event.target.value); if (!chosen.has(at)) { chosen.add(at); redraw(); } } })
        : h("pre", { tabindex: "0" }, text(record.value)),
      record.headers.length > 0 && [h("h3", {}, "Headers"), h("pre", { tabindex: "0" }, record.headers.map(([key, value]) => `${key}: ${text(value)}`).join("\n"))],
      h("h3", {}, `Error in ${record.stage ?? "an unknown stage"}`), h("pre", { tabindex: "0" }, record.error_stacktrace ?? record.error_message ?? ""));
  }

  async function replay() {
    const records = waiting().filter((record) => chosen.has(place(record)));
    const changed = records.filter((record) => fixes.has(place(record)) && fixes.get(place(record)) !== record.value?.text);
    const answer = await confirm({
      title: `Replay ${plural(records.length, "dead letter")}`, action: "Replay",
      text: [`The connector tries them again, each at its own place and once. ${changed.length ? `${plural(changed.length, "record")} with another value.` : ""}`,
        found.needs_only_missing_keys && "The table has no row order: only rows whose key does not exist yet are inserted."].filter(Boolean),
    });
    if (!answer) return;
    try {
      const answer = await operate(name, "replay", {
        records: records.map((record) => ({ topic: record.topic, partition: record.partition, offset: record.offset, ...(changed.includes(record) ? { value: { text: fixes.get(place(record)) } } : {}) })),
        ...(found.needs_only_missing_keys ? { only_missing_keys: true } : {}),
      });
      notice(`${plural(answer.replayed, "dead letter")} replayed${answer.replayed_before ? `; already replayed: ${answer.replayed_before}` : ""}`);
    } catch (error) {
      notice(error.message, true);
      return;  // the entered value is not cleared
    }
    for (const record of records) fixes.delete(place(record));
    await load();
    await again();
  }

  return { refresh, draw };
}
