// Curves of one run that follow it, and the controls that all curves share.

import { Chart } from "./charts.js";
import { arrange, fill, h } from "./dom.js";
import { get } from "./server.js";

const MAX_CURVES = 24; // that the server sends at once
const view = { x: "steps", log: false, smooth: 0, events: true };

export function curveOptions() {
  return { ...view };
}

/** Controls of axes, smoothing and events. `changed` is called with whether the curves have to be loaded again. */
export function curveControls(changed, hasEvents = true) {
  const set = (name, value) => { view[name] = value; changed(name === "x"); };
  return h("div.row.card", {},
    h("label", {}, "Against ", h("select", { onchange: (event) => set("x", event.target.value) }, ["steps", "time", "episodes"].map((text) => h("option", { value: text, selected: view.x === text }, text)))),
    h("label", {}, h("input", { type: "checkbox", checked: view.log, onchange: (event) => set("log", event.target.checked) }), " logarithmic"),
    h("label", {}, "Smoothing ", h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: view.smooth, oninput: (event) => set("smooth", Number(event.target.value)) })),
    hasEvents ? h("label", {}, h("input", { type: "checkbox", checked: view.events, onchange: (event) => set("events", event.target.checked) }), " events") : null);
}

/** Charts by metric, which stay on the page while their curves grow. */
export class CurveGrid {
  constructor(key) {
    this.key = key;
    this.element = h("div.grid");
    this.charts = new Map();
    this.due = 0;
    this.turn = 0;
  }

  /** Load the curves again, unless the server asked to wait: then later. `names` and `events` return what to show. */
  follow(names, events) {
    if (this.waiting) return;
    const rest = this.due - performance.now();
    this.waiting = true;
    this.timer = setTimeout(() => this.load(names(), events()).finally(() => { this.waiting = false; }), Math.max(0, rest));
  }

  async load(names, events) {
    const turn = ++this.turn;
    const shown = names.slice(0, MAX_CURVES);
    try {
      const found = shown.length ? await get("series", { key: this.key, name: shown, x: view.x }) : { series: {}, seconds: 0 };
      if (turn !== this.turn || this.closed) return;
      this.due = performance.now() + 1000 * found.seconds;
      this.loaded = { names: shown, series: found.series };
      this.draw(events);
      if (names.length > shown.length) this.element.append(h("p.dim", {}, `The first ${shown.length} of ${names.length} metrics are shown.`));
    } catch (error) {
      if (turn === this.turn) this.clear(h("p.dim", { role: "alert" }, error.message));
    }
  }

  /** Draw what was loaded with the newest choices. */
  draw(events) {
    if (!this.loaded) return;
    const { names, series } = this.loaded;
    if (!names.length) return this.clear(h("p.dim", {}, "No metrics yet."));
    for (const [name, chart] of this.charts) if (!names.includes(name)) { chart.destroy(); this.charts.delete(name); }
    for (const name of names) if (!this.charts.has(name)) this.charts.set(name, new Chart(name, `${this.key} ${name}`));
    arrange(this.element, names.map((name) => this.charts.get(name).element));
    const options = { ...curveOptions(), sync: this.key, events: view.events ? events : [] };
    for (const name of names) this.charts.get(name).show(series[name] ? [{ label: name, ...series[name] }] : [], options);
  }

  clear(...instead) {
    for (const chart of this.charts.values()) chart.destroy();
    this.charts.clear();
    fill(this.element, instead);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.clear();
  }
}
