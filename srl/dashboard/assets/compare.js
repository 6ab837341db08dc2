// The page that compares runs: one chart per metric, groups of seeds with intervals, and what differs between configs.

import { Chart } from "./charts.js";
import { curveControls, curveOptions } from "./curves.js";
import { arrange, figure, fill, h, patch } from "./dom.js";
import { selectedRuns } from "./runs.js";
import { get } from "./server.js";

const view = { metrics: ["return"], grouped: true };

export async function comparePage(main, events, parameters) {
  const keys = parameters.getAll("run").length ? parameters.getAll("run") : selectedRuns();
  if (!keys.length) {
    events.open("", {});
    fill(main, h("h1", {}, "Compare"), h("p", {}, "Select runs in the ", h("a", { href: "#/" }, "table of runs"), " first."));
    return () => {};
  }
  if (parameters.has("metric")) view.metrics = parameters.getAll("metric");
  const page = new ComparePage(main, keys);
  await page.load();
  let revision = 0;
  events.open("", {
    runs: ({ runs }, number) => {
      const isFirst = revision === 0;
      revision = number;
      if (!isFirst && runs.some((run) => keys.includes(run.key))) page.follow();
    },
  }, () => revision);
  return () => page.close();
}

class ComparePage {
  constructor(main, keys) {
    this.keys = keys;
    this.charts = new Map();
    this.grid = h("div.grid.wide");
    this.table = h("div.card.scroll");
    this.problem = h("p", { role: "alert" });
    this.chosen = h("span.row");
    this.add = h("select", { "aria-label": "Add a metric", onchange: () => { if (this.add.value) { view.metrics.push(this.add.value); this.load(); } } });
    fill(main, h("h1", {}, `Compare ${keys.length} run${keys.length === 1 ? "" : "s"}`), curveControls((again) => (again || !this.found ? this.load() : this.draw()), false),
      h("div.row", {}, h("label", {}, h("input", { type: "checkbox", checked: view.grouped, onchange: (event) => { view.grouped = event.target.checked; this.load(); } }), " mean and 95 % interval over seeds"), this.chosen, this.add),
      this.problem, this.grid, this.table);
    this.turn = 0;
    this.due = 0;
  }

  /** Load again after a run has gone on, not before the server wants to. */
  follow() {
    this.timer ??= setTimeout(() => { this.timer = null; this.load(); }, Math.max(0, this.due - performance.now()));
  }

  async load() {
    const turn = ++this.turn;
    const shown = new URLSearchParams([...this.keys.map((key) => ["run", key]), ...view.metrics.map((name) => ["metric", name])]);
    history.replaceState(null, "", `#/compare?${shown}`); // a link shows what its sender saw
    try {
      const found = await get("compare", { key: this.keys, metric: view.metrics, x: curveOptions().x, grouped: view.grouped ? "1" : "0" });
      if (turn !== this.turn || this.closed) return;
      this.due = performance.now() + 1000 * found.seconds;
      fill(this.problem);
      this.found = found;
      this.draw();
    } catch (error) {
      if (turn === this.turn && !this.closed) fill(this.problem, error.message);
    }
  }

  draw() {
    const { found } = this;
    for (const [metric, chart] of this.charts) if (!view.metrics.includes(metric)) { chart.destroy(); this.charts.delete(metric); }
    for (const metric of view.metrics) if (!this.charts.has(metric)) this.charts.set(metric, new Chart(metric, `compare ${metric}`));
    arrange(this.grid, view.metrics.map((metric) => this.charts.get(metric).element));
    for (const metric of view.metrics) this.charts.get(metric).show(found.curves[metric] ?? [], { ...curveOptions(), events: [], height: 320 });
    patch(this.table, h("h2", {}, "Options that differ"),
      found.options.length ? null : h("p.dim", {}, "These runs have the same options, apart from their seeds."),
      h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Option"), found.groups.map((group) => h("th", {}, group.label)))),
          h("tbody", {}, found.options.map((option) => h("tr", {}, h("td", {}, h("code", {}, option.name)), option.values.map((value) => h("td", {}, h("code", {}, value))))),
            h("tr", {}, h("td.dim", {}, "seeds"), found.groups.map((group) => h("td", {}, group.seeds))),
            h("tr", {}, h("td.dim", {}, `final ${view.metrics[0]}`), found.groups.map((group) => h("td", {}, group.final === null ? "–" : figure(group.final) + (group.interval ? ` ± ${figure(group.interval)}` : "")))))),
      found.notes.map((note) => h("p.dim", {}, note)));
    const known = found.metrics.filter((name) => !view.metrics.includes(name));
    patch(this.add, h("option", { value: "", selected: true }, "add a metric …"), known.slice(0, 500).map((name) => h("option", { value: name }, name)));
    patch(this.chosen, view.metrics.map((metric) => h("button", { type: "button", "data-key": metric, title: "Remove", disabled: view.metrics.length === 1, onclick: () => { view.metrics = view.metrics.filter((one) => one !== metric); this.load(); } }, `${metric} ✕`)));
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    for (const chart of this.charts.values()) chart.destroy();
  }
}
