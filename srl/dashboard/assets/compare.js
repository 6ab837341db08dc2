// The page that compares runs: one chart per metric, groups of seeds with intervals, and what differs between configs.

import { chart } from "./charts.js";
import { figure, fill, h } from "./dom.js";
import { curveControls, curveOptions, exportButtons } from "./run.js";
import { selectedRuns } from "./runs.js";
import { get } from "./server.js";

const view = { metrics: ["return"], grouped: true };

export async function comparePage(main, events, parameters) {
  const keys = parameters.getAll("run").length ? parameters.getAll("run") : selectedRuns();
  events.open("", {});
  if (!keys.length) {
    fill(main, h("h1", {}, "Compare"), h("p", {}, "Select runs in the ", h("a", { href: "#/" }, "table of runs"), " first."));
    return;
  }
  const charts = h("div.grid"), table = h("div.card.scroll");
  const draw = async () => {
    const { x, log, smooth } = curveOptions();
    const found = await get("compare", { key: keys, metric: view.metrics, x, grouped: view.grouped ? "1" : "0" });
    fill(charts, view.metrics.map((metric) => {
      const options = { title: metric, x, log, smooth, height: 320 };
      const curves = found.curves[metric] ?? [];
      const card = chart(curves, options);
      if (curves.length) card.append(exportButtons(card, options, `compare ${metric}`));
      return card;
    }));
    fill(table, h("h2", {}, "Options that differ"), found.options.length
      ? h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Option"), found.groups.map((group) => h("th", {}, group.label)))),
          h("tbody", {}, found.options.map((option) => h("tr", {}, h("td", {}, h("code", {}, option.name)), option.values.map((value) => h("td", {}, h("code", {}, value))))),
            h("tr", {}, h("td.dim", {}, "seeds"), found.groups.map((group) => h("td", {}, group.seeds))),
            h("tr", {}, h("td.dim", {}, `final ${view.metrics[0]}`), found.groups.map((group) => h("td", {}, group.final === null ? "–" : figure(group.final) + (group.interval ? ` ± ${figure(group.interval)}` : ""))))))
      : h("p.dim", {}, "These runs have the same options, apart from their seeds."),
      found.notes.map((note) => h("p.dim", {}, note)));
    const known = found.metrics.filter((name) => !view.metrics.includes(name));
    fill(add, h("option", { value: "" }, "add a metric …"), known.slice(0, 500).map((name) => h("option", { value: name }, name)));
    fill(chosen, view.metrics.map((metric) => h("button", { type: "button", title: "Remove", disabled: view.metrics.length === 1, onclick: () => { view.metrics = view.metrics.filter((one) => one !== metric); again(); } }, `${metric} ✕`)));
  };
  const again = () => draw().catch((error) => fill(charts, h("p", { role: "alert" }, error.message)));
  const add = h("select", { "aria-label": "Add a metric", onchange: (event) => { if (event.target.value) { view.metrics.push(event.target.value); again(); } } });
  const chosen = h("span.row");
  fill(main, h("h1", {}, `Compare ${keys.length} run${keys.length === 1 ? "" : "s"}`), curveControls(again),
    h("div.row", {}, h("label", {}, h("input", { type: "checkbox", checked: view.grouped, onchange: (event) => { view.grouped = event.target.checked; again(); } }), " mean and 95 % interval over seeds"), chosen, add), charts, table);
  await draw();
}
