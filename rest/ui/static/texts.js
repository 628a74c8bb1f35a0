// Formatting of numbers and times.

const NUMBER = new Intl.NumberFormat("en");

export const number = (value) => value === undefined || value === null ? "–" : NUMBER.format(Math.round(value));

export function bytes(value) {
  if (value === undefined || value === null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds === undefined || seconds === null || Number.isNaN(seconds)) return "–";
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

export function ago(ms) {
  return ms ? `${duration((Date.now() - ms) / 1000)} ago` : "–";
}

export function clock(ms, withDay = false) {
  const at = new Date(ms);
  const day = withDay ? `${at.toLocaleDateString("sv-SE")} ` : "";
  return day + at.toLocaleTimeString("sv-SE");
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

// The first line of a trace, with the class name without its package.
export function firstLine(trace) {
  const line = (trace ?? "").split("\n").map((each) => each.trim()).find(Boolean) ?? "";
  return line.replace(/^(?:\w+\.)+(?=\w+: )/, "");
}
