// The committed offsets of a connector.

import { grid, h } from "./dom.js";
import { get, path } from "./rest.js";

export function offsetsTab({ name }) {
  let found = [], topics = [];
  return {
    async refresh() {
      [found, topics] = await Promise.all([get(path`connectors/${name}/offsets`).then((answer) => answer.offsets),
        get(path`connectors/${name}/topics`).then((answer) => answer[name].topics, () => [])]);
    },
    draw() {
      return [
        topics.length > 0 && h("p", { class: "hint" }, `Topics used: ${topics.join(", ")}`),
        grid({
          caption: "Committed offsets", rows: found, key: (row) => JSON.stringify(row.partition), empty: "It has not committed any offsets yet.",
          columns: [
            ["Partition", "mono", (row) => Object.entries(row.partition ?? {}).map(([key, value]) => `${key}=${value}`).join(" ")],
            ["Offset", "mono wide", (row) => row.offset === null ? "–" : Object.entries(row.offset).map(([key, value]) => `${key}=${value}`).join(" ")],
          ],
        }),
        h("p", { class: "hint small" }, "To change the offsets of a stopped connector, use ", h("code", {}, `PATCH connectors/${name}/offsets`), ": ", h("a", { href: "docs" }, "API"), "."),
      ];
    },
  };
}
