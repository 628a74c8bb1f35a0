// The shell: selects the view for the address, refreshes it, and renders the navigation bar.

import { h, morph, notice } from "./dom.js";
import { get, worker } from "./rest.js";
import { startTheme } from "./theme.js";
import { clock } from "./texts.js";
import { connectorView } from "./connector_view.js";
import { connectorsView } from "./connectors_view.js";
import { createView } from "./create_view.js";
import { workersView } from "./workers_view.js";

const main = document.getElementById("main");
const fresh = document.getElementById("fresh");
let current = null;
let timer = 0;

function route() {
  const [where, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = where.split("/").filter(Boolean).map(decodeURIComponent);
  const asked = new URLSearchParams(query ?? "");
  if (parts[0] === "connectors" && parts.length > 1) return ["connectors", connectorView(parts[1], parts[2] ?? "overview", parts[3])];
  if (parts[0] === "create") return ["create", createView(asked)];
  if (parts[0] === "workers") return ["workers", workersView()];
  return ["connectors", connectorsView(asked)];
}

async function navigate() {
  clearTimeout(timer);
  const [section, view] = route();
  current = view;
  for (const link of document.querySelectorAll("[data-nav]")) {
    if (link.dataset.nav === section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${view.title} · Connect`;
  view.show = (...nodes) => {
    if (current === view) morph(main, h("main", { id: "main", tabindex: "-1" }, nodes));
  };
  view.isCurrent = () => current === view;
  view.again = () => refresh(view);
  main.replaceChildren(h("h1", { tabindex: "-1" }, view.title), h("p", { class: "hint" }, "Loading…"));
  delete document.body.dataset.ready;
  await refresh(view);
  if (started && current === view) main.querySelector("h1")?.focus({ preventScroll: true });
}

async function refresh(view) {
  clearTimeout(timer);
  if (current !== view) return;
  try {
    await view.refresh();
    if (current !== view) return;
    view.problem = fresh.title = "";
    fresh.className = "fresh";
    fresh.textContent = view.seconds ? `as of ${clock(Date.now())}` : "";
  } catch (error) {
    if (error.status === undefined) console.error(error);
    if (current !== view) return;
    fresh.className = "fresh lost";
    fresh.textContent = error.status === 0 ? "No answer" : error.status === 404 ? "Not found" : "Error";
    fresh.title = error.message;
    if (main.querySelector(".hint") && main.children.length === 2) {
      view.show(h("h1", { tabindex: "-1" }, view.title),
        h("div", { class: "card bad" }, h("p", {}, error.message), h("p", {}, h("a", { href: "#/" }, "All connectors"))));
    } else if (view.problem !== error.message) notice(error.message, true);
    view.problem = error.message;
  }
  document.body.dataset.ready = view.title;
  if (current === view && view.seconds) timer = setTimeout(() => refresh(view), view.seconds * 1000);
}

let started = false;
addEventListener("hashchange", () => {
  if (location.hash === "#main") return;
  navigate();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else if (current?.seconds) refresh(current);
});
addEventListener("unhandledrejection", (event) => {
  notice(event.reason?.message ?? String(event.reason), true);
  if (event.reason?.status !== undefined) event.preventDefault();  // an error response from the worker, not an error in this page
});

startTheme();
navigate().then(() => { started = true; });
Promise.all([get("."), worker()]).then(([info, { workers }]) => {
  const own = workers.find((each) => each.here);
  document.getElementById("cluster").textContent =
    `${own ? own.worker_id : "worker"} · Kafka ${info.kafka_cluster_id} · ${info.commit}`;
}).catch(() => {});
