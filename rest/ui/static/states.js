// The page's labels for the states in the REST API.

import { firstLine } from "./texts.js";

// Returns the most urgent state of a connector and its tasks.
export function overall(status) {
  if (!status) return "UNASSIGNED";
  const items = [status.connector, ...status.tasks];
  if (items.some((each) => each.state === "FAILED")) return "FAILED";
  if (status.connector.state !== "RUNNING") return status.connector.state;
  if (items.some((each) => each.state === "UNASSIGNED" || each.state === "RESTARTING")) return "UNASSIGNED";
  return items.some((each) => each.waiting) ? "WAITING" : "RUNNING";
}

export function remark(item) {
  if (item.trace) return firstLine(item.trace);
  if (item.waiting) return `waits for ${item.waiting.for}: ${item.waiting.reason}`;
  return item.stopped ? `stopped by itself: ${item.stopped.reason}` : "";
}

export function firstRemark(status) {
  const items = [["connector", status.connector], ...status.tasks.map((task) => [`task ${task.id}`, task])];
  const found = items.filter(([, item]) => remark(item));
  found.sort(([, a], [, b]) => Number(b.state === "FAILED") - Number(a.state === "FAILED"));
  return found.length ? `${found[0][0]}: ${remark(found[0][1])}` : "";
}

export function taskCounts(tasks) {
  const counts = new Map();
  for (const { state } of tasks) counts.set(state, (counts.get(state) ?? 0) + 1);
  return [...counts].map(([state, count]) => `${count} ${state.toLowerCase()}`).join(", ") || "none";
}
