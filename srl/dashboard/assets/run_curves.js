// Tabs of a run with curves: the overview with the graph of workers and events, and any metric.

import { EVENT_COLORS } from "./charts.js";
import { CurveGrid, curveControls } from "./curves.js";
import { duration, figure, fill, h, legend, patch } from "./dom.js";
import { drawGraph } from "./graph.js";
import { showWorkers } from "./run_tabs.js";

const FIRST_CURVES = ["return", "eval/return", "length", "train_fps"];
const MAX_CHOICES = 400;
/** Metrics that were chosen; the choice holds for all runs. */
const chosen = new Set();

function firstMetrics(known) {
  const returns = known.filter((name) => FIRST_CURVES.includes(name) || /^[^/]+\/(return|eval\/return)$/.test(name));
  return [...new Set([...FIRST_CURVES.filter((name) => returns.includes(name)), ...returns])].slice(0, 6);
}

/** Curves that are loaded again whenever the run has gone on. */
class Following {
  constructor(page) {
    this.page = page;
    this.grid = new CurveGrid(page.key);
    this.state = null;
  }

  names() { return firstMetrics(this.page.detail.metrics); }

  load() {
    this.state = this.progress();
    return this.grid.load(this.names(), this.page.detail.events);
  }

  progress() {
    const { status, detail } = this.page;
    return [status.steps, status.updates, status.elapsed, detail.stamp, detail.events.length].join();
  }

  follow() {
    if (this.progress() === this.state) return;
    this.state = this.progress();
    this.grid.follow(() => this.names(), () => this.page.detail.events);
  }

  close() { this.grid.close(); }
}

export class OverviewTab extends Following {
  constructor(page, body) {
    super(page);
    this.graph = h("div.card");
    this.events = h("div.card");
    this.league = h("div");
    fill(body, h("div", { id: "overview" }, this.graph, this.events, this.grid.element, this.league));
    this.draw();
    this.load();
  }

  draw() {
    const { status, groups, rates, detail } = this.page;
    const open = (group) => { showWorkers(group); this.page.show("Workers"); };
    patch(this.graph, h("h2", {}, "Workers and streams"), groups.length
      ? h("div.scroll", {}, drawGraph({ ...status, policyCount: Object.keys(status.policies ?? {}).length }, groups, rates, open))
      : h("p.dim", {}, "This run ended before the graph was recorded."), legend());
    const events = detail.events.map((event, i) => [detail.events_begin + i, event]).reverse();
    patch(this.events, h("h2", {}, "Events"), events.length
      ? h("ol.events", { tabindex: 0 }, events.map(([number, event]) => h("li", { "data-key": number }, h("time", {}, duration(event.elapsed)),
        h("span.kind", { style: { color: `var(${EVENT_COLORS[event.event] ?? "--dim"})` } }, event.event), h("span.text", {}, event.text))))
      : h("p.dim", {}, "Nothing has happened yet."));
    patch(this.league, league(detail.league));
  }

  update() {
    this.draw();
    this.follow();
  }
}

function league(found) {
  if (!found) return null;
  const color = (value) => (value === null ? null : { background: `color-mix(in srgb, var(--${value >= 0.5 ? "good" : "bad"}) ${Math.round(140 * Math.abs(value - 0.5))}%, transparent)` });
  const ratings = Object.entries(found.ratings).sort((a, b) => b[1] - a[1]);
  return h("div.card", {}, h("h2", {}, "League"), h("p.dim", {}, "Mean points of the player of a row against the player of a column (win 1, draw 0.5)."),
    h("div.scroll", {}, h("table.heat", {}, h("thead", {}, h("tr", {}, h("th"), found.names.map((name) => h("th", {}, name)))),
      h("tbody", {}, found.names.map((name, i) => h("tr", {}, h("th", {}, name), found.values[i].map((value) => h("td", { style: color(value) }, figure(value)))))))),
    ratings.length ? h("p", {}, "Ratings: ", ratings.map(([name, value]) => `${name} ${figure(value)}`).join(", ")) : null);
}

export class CurvesTab extends Following {
  constructor(page, body) {
    super(page);
    this.filter = "";
    this.list = h("div.row");
    this.title = h("summary");
    fill(body, curveControls((again) => (again ? this.load() : this.grid.draw(page.detail.events))), h("details.card", {}, this.title,
      h("input", { type: "search", placeholder: "Find a metric", "aria-label": "Find a metric", oninput: (event) => { this.filter = event.target.value; this.draw(); } }), this.list), this.grid.element);
    this.draw();
    this.load();
  }

  names() {
    const wanted = this.page.detail.metrics.filter((name) => chosen.has(name));
    return wanted.length ? wanted : super.names();
  }

  draw() {
    const known = this.page.detail.metrics;
    patch(this.title, `Metrics (${known.length})`);
    patch(this.list, known.filter((name) => name.includes(this.filter)).slice(0, MAX_CHOICES).map((name) => h("label", { "data-key": name },
      h("input", { type: "checkbox", checked: chosen.has(name), onchange: (event) => { event.target.checked ? chosen.add(name) : chosen.delete(name); this.load(); } }), " ", name)));
  }

  update() {
    this.draw();
    this.follow();
  }
}
