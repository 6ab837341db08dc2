// Entry point: chooses the page by the part of the address behind #, and shows whether the server answers.

import { comparePage } from "./compare.js";
import { fill, h } from "./dom.js";
import { runPage } from "./run.js";
import { runsPage } from "./runs.js";
import { Events } from "./server.js";

const main = document.getElementById("view");
const connection = document.getElementById("connection");
let leave = null, visits = 0;

const events = new Events((isUp, reason) => {
  connection.className = isUp ? "" : "lost";
  connection.textContent = isUp ? "live" : reason || "connection lost, trying again …";
});

async function show() {
  const visit = ++visits;
  leave?.();
  leave = null;
  document.getElementById("dialog").close();
  const [path, query = ""] = (location.hash.slice(1) || "/").split("?");
  const parameters = new URLSearchParams(query);
  const page = path.startsWith("/run/") ? "run" : path === "/compare" ? "compare" : "runs";
  for (const link of document.querySelectorAll("nav a")) link.dataset.page === page ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  try {
    let left = null;
    document.title = page === "compare" ? "Compare · SRL" : "SRL";
    if (page === "run") left = await runPage(main, events, decodeURIComponent(path.slice(5)), parameters.get("tab"));
    else if (page === "compare") left = await comparePage(main, events, parameters);
    else await runsPage(main, events);
    if (visit === visits) leave = left;
    else left?.();
  } catch (error) {
    if (visit === visits) fill(main, h("div.card.error", { role: "alert" }, h("h1", {}, "This page cannot be shown"), h("p", {}, error.message), h("a", { href: "#/" }, "All runs")));
  }
}

function theme(choice) {
  document.documentElement.dataset.theme = choice;
  localStorage.setItem("srl-theme", choice);
}
theme(localStorage.getItem("srl-theme") ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", () => { theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"); show(); });

// The token is in a cookie now: keep it out of the history and of shared links.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);
addEventListener("hashchange", show);
show();
