// Draws plots without a library: a line over time, or one bar per commit. Each plot has a summary for screen readers.

import { h, s } from "./dom.js";
import { clock } from "./texts.js";

const WIDTH = 640, HEIGHT = 190, LEFT = 52, RIGHT = 10, TOP = 10, BOTTOM = 22;

function nice(top) {
  if (!(top > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(top));
  return [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= top);
}

// series: [{name, points: [[ms, value], ...]}], oldest first.
export function linePlot({ title, series, format, bars = false, step = false, empty = "No figures yet" }) {
  const filled = series.filter((each) => each.points.length);
  const all = filled.flatMap((each) => each.points);
  if (!all.length) {
    return h("figure", { class: "card", key: title }, h("figcaption", {}, title), h("p", { class: "hint" }, empty));
  }
  const first = Math.min(...all.map(([at]) => at)), last = Math.max(...all.map(([at]) => at));
  const span = Math.max(last - first, 1000), top = nice(Math.max(...all.map(([, value]) => value)));
  const x = (at) => LEFT + ((at - first) / span) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
  const latest = filled.map(({ name, points }) => {
    const text = format(points.at(-1)[1]);
    return filled.length > 1 ? `${name} ${text}` : text;
  }).join(", ");
  const readout = h("span", { class: "value" }, latest);
  const cross = s("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const shape = bars ? drawBars : step ? drawSteps : drawLine;
  const svg = s("svg", {
    class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
    "aria-label": `${title}: from ${clock(first, true)} to ${clock(last, true)}; now ${latest}; at most ${format(Math.max(...all.map(([, value]) => value)))}`,
    onpointermove: (event) => {
      const box = event.currentTarget.getBoundingClientRect();
      const at = first + (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT) * span;
      const near = filled.map(({ name, points }) => [name, points.reduce((best, each) =>
        Math.abs(each[0] - at) < Math.abs(best[0] - at) ? each : best)]);
      const line = event.currentTarget.querySelector(".cross"), out = event.currentTarget.parentNode.querySelector(".value");
      line.setAttribute("x1", x(near[0][1][0]));
      line.setAttribute("x2", x(near[0][1][0]));
      line.setAttribute("visibility", "visible");
      out.textContent = `${clock(near[0][1][0])}  ${near.map(([name, [, value]]) =>
        filled.length > 1 ? `${name} ${format(value)}` : format(value)).join(", ")}`;
    },
    onpointerleave: (event) => {
      event.currentTarget.querySelector(".cross")?.setAttribute("visibility", "hidden");
      const out = event.currentTarget.parentNode?.querySelector(".value");
      if (out) out.textContent = latest;
    },
  },
  [0, 0.5, 1].map((part) => [
    s("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(top * part), y2: y(top * part) }),
    s("text", { x: LEFT - 6, y: y(top * part) + 4, "text-anchor": "end" },
      part === 0.5 && format(top * part) === format(top) ? "" : format(top * part)),  // a count has no fraction
  ]),
  s("text", { x: LEFT, y: HEIGHT - 6 }, clock(first, span > 86400000)),
  s("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, clock(last)),
  filled.map(({ points }, at) => shape(points, at, x, y, filled.length)), cross);
  return h("figure", { class: "card", key: title },
    h("figcaption", {}, title, readout), svg,
    filled.length > 1 && h("p", { class: "legend" }, filled.map(({ name }, at) => h("span", { class: `l${at}` }, name))));
}

function drawLine(points, at, x, y) {
  const line = points.map(([when, value], n) => `${n ? "L" : "M"}${x(when).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return [at === 0 && points.length > 1 && s("path", { class: "area", d: `${line}L${x(points.at(-1)[0]).toFixed(1)} ${y(0)}L${x(points[0][0]).toFixed(1)} ${y(0)}Z` }),
    s("path", { class: `s${at}`, d: line }),
    s("circle", { class: `s${at}`, cx: x(points.at(-1)[0]).toFixed(1), cy: y(points.at(-1)[1]).toFixed(1), r: 3 })];
}

function drawSteps(points, at, x, y) {
  const stepped = points.flatMap((point, n) => n ? [[point[0], points[n - 1][1]], point] : [point]);
  return drawLine(stepped, at, x, y);
}

function drawBars(points, at, x, y, count) {
  const wide = Math.max(1.5, Math.min(12, (WIDTH - LEFT - RIGHT) / points.length / count - 1));
  return points.map(([when, value]) => s("rect", {
    class: `b${at}`, x: Math.min(x(when) + at * wide, WIDTH - RIGHT - wide).toFixed(1), width: wide.toFixed(1),
    y: y(value).toFixed(1), height: Math.max(y(0) - y(value), value ? 1 : 0).toFixed(1),
  }));
}
