// Metrics of connectors since this page was opened, for up to an hour. They are stored in the browser only.

import { get, metrics } from "./rest.js";

const MOST = 720;
const kept = new Map();

const sum = (found) => found.reduce((total, each) => total + each.value, 0);

// The status and the metrics of a connector, and its earlier metrics.
export async function look(name) {
  const status = await get(`connectors/${encodeURIComponent(name)}/status`);
  const workers = [...new Set(status.tasks.map((task) => task.worker_id).filter(Boolean))];
  const found = workers.length ? await metrics(name, workers) : [];
  const now = reading(found);
  if (!kept.has(name)) kept.set(name, []);
  const samples = kept.get(name);
  if (workers.length) samples.push({ at: Date.now(), records: now.records, lags: new Map([...now.tables].map(([table, { lag }]) => [table, lag])) });
  if (samples.length > MOST) samples.shift();
  return { status, samples, ...now };
}

function reading(found) {
  const named = (name, labels = {}) => found.filter((each) => each.name === name &&
    Object.entries(labels).every(([label, value]) => each.labels[label] === value));
  const tables = new Map();
  const prefix = "connect_py_iceberg_";
  for (const each of found) {
    const table = each.labels.table;
    if (each.name.startsWith(prefix) && table && !tables.has(table)) tables.set(table, { name: table, waiting: [], changes: [], excesses: [] });
  }
  for (const table of tables.values()) {
    const of = (name) => named(prefix + name, { table: table.name });
    const one = (name) => of(name)[0]?.value;
    table.lag = one("lag_seconds");
    table.lastCommit = one("last_commit_seconds") * 1000;
    table.validThrough = one("valid_through_seconds") * 1000;
    table.added = sum(of("added_rows_total"));
    table.replaced = sum(of("replaced_rows_total"));
    table.commits = sum(named(`${prefix}commits_total`, { table: table.name, outcome: "committed" }));
    table.dataFiles = one("table_data_files");
    table.deleteFiles = one("table_delete_files");
    table.unpublished = Boolean(one("unpublished"));
    table.waiting = of("waiting").filter((each) => each.value).map((each) => each.labels.reason);
    table.excesses = of("table_excessive").filter((each) => each.value).map((each) => each.labels.objects);
    table.changes = of("held_changes").filter((each) => each.value).map((each) => each.labels.change);
  }
  const lags = new Map();  // a worker may serve the same metric under several names
  for (const { name, labels, value } of found) {
    if (name.endsWith("records_lag") && !Number.isNaN(value)) lags.set(`${labels.topic}/${labels.partition}`, value);
  }
  const dead = named("connect_py_cdc_dlq_total");
  return {
    tables, records: lags.size ? [...lags.values()].reduce((total, each) => total + each, 0) : undefined,
    deadLetters: dead.map((each) => ({ ...each.labels, count: each.value })).filter((each) => each.count),
  };
}
