// Light, dark, or the system's theme; stored in the browser.

const NAMES = { "": "system default", light: "light", dark: "dark" };
const SIGNS = { "": "◐", light: "☀", dark: "☾" };

export function startTheme() {
  const button = document.getElementById("theme");
  const set = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    button.textContent = SIGNS[theme];
    button.setAttribute("aria-label", `Colors: ${NAMES[theme]}`);
    button.title = `Colors: ${NAMES[theme]}`;
  };
  const order = Object.keys(NAMES);
  let theme = localStorage.getItem("connect.theme") ?? "";
  if (!order.includes(theme)) theme = "";
  set(theme);
  button.onclick = () => {
    theme = order[(order.indexOf(theme) + 1) % order.length];
    localStorage.setItem("connect.theme", theme);
    set(theme);
  };
}
