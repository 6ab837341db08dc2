// Curves with uPlot: lines over steps or time, intervals, logarithmic axes, and files of them.

import uPlot from "./vendor/uPlot.esm.js";
import { count, duration, figure, fill, h, short } from "./dom.js";

// Okabe and Ito's palette, safe for color-blind readers.
export const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8c6d31", "#7f7f7f"];

export const EVENT_COLORS = { worker: "--warn", "host lost": "--bad", host: "--warn", resume: "--accent", takeover: "--accent", callback: "--update", change: "--publish", checkpoint: "--good" };

/** Colors on the background of the page; files have a white one. */
function colors() {
  return document.documentElement.dataset.theme === "dark" ? ["#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#0072B2", "#b59b5b", "#9f9f9f"] : COLORS;
}

/** Return the number at a tick: 2k instead of 2.00k. */
function rounded(value) {
  const text = short(value);
  return text.includes(".") ? text.replace(/\.?0+(?=[kMG]?$)/, "") : text;
}

function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Exponential moving average that begins at the first value, as in TensorBoard. */
export function smoothed(values, weight) {
  if (!weight) return values;
  let mean = 0, norm = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return mean / norm;
  });
}

/** A card with a chart, whose curves grow in place: what the reader zoomed to and hid stays. */
export class Chart {
  /** `name` is that of its files. */
  constructor(title, name) {
    this.title = title;
    this.place = h("div");
    this.files = h("div.row", {}, ["PNG", "SVG", "CSV"].map((kind) => h("button", { type: "button", onclick: () => this.save(kind, name) }, kind)));
    this.element = h("div.chart.card", {}, h("h3", {}, title), this.place, this.files);
    this.element.opaque = true;
    this.kind = null;
  }

  /** Show `curves`, {label, x, y, low?, high?}. `options` are {x: "steps" | "time", log, smooth, events, sync, height}. */
  show(curves, options) {
    this.curves = curves.filter((curve) => curve.x.length);
    this.options = { ...options, title: this.title };
    this.files.hidden = !this.curves.length;
    const kind = JSON.stringify([options.x, options.log, this.curves.map((curve) => [curve.label, Boolean(curve.low)])]);
    if (this.kind === kind && this.plot) {
      const { min, max } = this.plot.scales.x;
      const xs = this.plot.data[0], isZoomed = min > xs[0] || max < xs.at(-1);
      this.plot.setData(tables(this.curves, options), !isZoomed);
      if (isZoomed) this.plot.setScale("x", { min, max });
    } else if (this.kind !== kind) this.build();
    this.kind = kind;
  }

  build() {
    this.plot?.destroy();
    this.plot = null;
    if (!this.curves.length) return void fill(this.place, h("p.dim", {}, "No values yet."));
    fill(this.place);
    // The width is known once the card is on the page.
    queueMicrotask(() => this.place.isConnected && !this.plot && this.curves.length && this.plotted());
  }

  plotted() {
    const width = () => Math.max(240, this.place.clientWidth || 380);
    const config = plotConfig(this.curves, this.options, () => this.options.events ?? []);
    config.width = width();
    this.plot = new uPlot(config, tables(this.curves, this.options), this.place);
    // Rows of the legend for the edges of intervals say nothing.
    config.series.forEach((one, i) => { if (/ (low|high)$/.test(one.label)) this.plot.root.querySelectorAll(".u-series")[i].style.display = "none"; });
    this.watch ??= new ResizeObserver(() => { if (this.plot && this.element.isConnected && Math.abs(width() - this.plot.width) > 2) this.plot.setSize({ width: width(), height: this.plot.height }); });
    this.watch.observe(this.element);
  }

  destroy() {
    this.watch?.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  async save(kind, name) {
    const file = name.replaceAll(/[^A-Za-z0-9._-]+/g, "-");
    if (kind === "PNG") download(`${file}.png`, await asPNG(asSVG(this.curves, this.options)));
    if (kind === "SVG") download(`${file}.svg`, asSVG(this.curves, this.options), "image/svg+xml");
    if (kind === "CSV") download(`${file}.csv`, asCSV(this.curves, this.options.x), "text/csv");
  }
}

/** Return the columns of uPlot: positions, then the values of each curve and the edges of its interval. */
function tables(curves, options) {
  const usable = (values) => (options.log ? values.map((value) => (value > 0 ? value : null)) : values);
  return uPlot.join(curves.flatMap((curve) => [[curve.x, usable(smoothed(curve.y, options.smooth))], ...(curve.low ? [[curve.x, usable(curve.low), usable(curve.high)]] : [])]));
}

function plotConfig(curves, options, events) {
  const series = [{ label: { steps: "step", episodes: "episode" }[options.x] ?? options.x, value: (_, v) => (v === null ? "–" : options.x === "time" ? duration(v) : count(v)) }];
  const bands = [];
  curves.forEach((curve, index) => {
    const color = colors()[index % COLORS.length];
    const at = series.length;
    series.push({ label: curve.label, stroke: color, width: 1.6, spanGaps: true, points: { show: (plot) => plot.data[0].length < 3 }, value: (_, v) => figure(v) });
    if (curve.low) {
      series.push({ label: `${curve.label} low`, stroke: color, width: 0, spanGaps: true, points: { show: false } });
      series.push({ label: `${curve.label} high`, stroke: color, width: 0, spanGaps: true, points: { show: false } });
      bands.push({ series: [at + 2, at + 1], fill: `${color}30` });
    }
  });
  const axis = { stroke: style("--dim"), grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line"), width: 1 }, font: "11px system-ui" };
  return {
    height: options.height ?? 200, series, bands,
    scales: { x: { time: false }, y: { distr: options.log ? 3 : 1 } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map((v) => (options.x === "time" ? duration(v) : rounded(v))) },
      { ...axis, size: 62, values: (_, ticks) => ticks.map((v) => (v === null ? "" : figure(v))) },
    ],
    legend: { live: true }, cursor: { drag: { x: true, y: false }, sync: { key: options.sync ?? null } },
    plugins: [eventLines(options.x, events)],
  };
}

/** Dashed lines for what happened; checkpoints are short ticks, because there are many. */
function eventLines(x, events) {
  return {
    hooks: {
      draw: (plot) => {
        const { ctx, bbox } = plot;
        if (x === "episodes") return; // events have no number of episodes
        ctx.save();
        for (const event of events()) {
          const at = plot.valToPos(x === "time" ? event.elapsed : event.step, "x", true);
          if (!(at >= bbox.left && at <= bbox.left + bbox.width)) continue;
          const isTick = event.event === "checkpoint";
          ctx.setLineDash(isTick ? [] : [3, 3]);
          ctx.strokeStyle = style(EVENT_COLORS[event.event] ?? "--dim");
          ctx.lineWidth = isTick ? 2 : 1;
          ctx.beginPath(); ctx.moveTo(at, isTick ? bbox.top + bbox.height - 9 : bbox.top); ctx.lineTo(at, bbox.top + bbox.height); ctx.stroke();
        }
        ctx.restore();
      },
    },
  };
}

function download(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function asCSV(curves, axis) {
  const rows = [["curve", axis, "value", "low", "high"]];
  for (const curve of curves)
    curve.x.forEach((x, i) => rows.push([curve.label, x, curve.y[i] ?? "", curve.low?.[i] ?? "", curve.high?.[i] ?? ""]));
  return rows.map((row) => row.map((cell) => (/[",\n]/.test(String(cell)) ? `"${String(cell).replaceAll('"', '""')}"` : cell)).join(",")).join("\n");
}

/** Return positions at even distances of 1, 2 or 5 times a power of ten; on a logarithmic axis, powers of ten. */
export function ticks(low, high, log) {
  const span = high - low || Math.abs(high) || 1, power = 10 ** Math.floor(Math.log10(span / 4));
  const step = log && span >= 2 ? Math.ceil(span / 6) : power * [1, 2, 5, 10].find((factor) => factor * power >= span / 6);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high + 1e-9 * span; at++) found.push(at * step);
  return found;
}

/** Draw an SVG file at twice its size. */
async function asPNG(svg) {
  const image = new Image();
  image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = h("canvas", { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done));
}

/** Draw the curves as a standalone SVG file, with their names above. */
function asSVG(curves, options) {
  const top = 16 + 15 * curves.length, [width, height, left, bottom, right] = [640, 400 + top, 64, 44, 16];
  const every = curves.flatMap((c) => [...c.y, ...(c.low ?? []), ...(c.high ?? [])]).filter((v) => v !== null && (!options.log || v > 0));
  const scale = options.log ? Math.log10 : (v) => v;
  const xs = curves.flatMap((c) => c.x);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)], [y0, y1] = [scale(Math.min(...every)), scale(Math.max(...every))];
  const px = (x) => (left + ((width - left - right) * (x - x0)) / (x1 - x0 || 1)).toFixed(1);
  const py = (y) => (height - bottom - ((height - bottom - top) * (scale(y) - y0)) / (y1 - y0 || 1)).toFixed(1);
  const usable = (v) => v !== null && (!options.log || v > 0);
  const parts = [h("rect", { width, height, fill: "#fff" })];
  for (const y of ticks(y0, y1, options.log)) {
    const value = options.log ? 10 ** y : y, at = Number(py(value));
    parts.push(h("path", { d: `M${left},${at}H${width - right}`, stroke: "#e6e6e6" }));
    parts.push(h("text", { x: left - 6, y: at + 4, "text-anchor": "end", "font-size": 11 }, figure(value)));
  }
  for (const x of ticks(x0, x1, false)) parts.push(h("text", { x: px(x), y: height - bottom + 16, "text-anchor": "middle", "font-size": 11 }, options.x === "time" ? duration(x) : rounded(x)));
  curves.forEach((curve, index) => {
    const color = COLORS[index % COLORS.length];
    const line = (ys) => curve.x.map((x, i) => [x, ys[i]]).filter(([, y]) => usable(y)).map(([x, y]) => `${px(x)},${py(y)}`);
    if (curve.low) parts.push(h("path", { d: `M${[...line(curve.high), ...line(curve.low).reverse()].join("L")}Z`, fill: color, "fill-opacity": 0.18 }));
    parts.push(h("path", { d: `M${line(smoothed(curve.y, options.smooth)).join("L")}`, fill: "none", stroke: color, "stroke-width": 1.6 }));
    parts.push(h("text", { x: left, y: 18 + 15 * index, fill: color, "font-size": 12 }, curve.label));
  });
  parts.push(h("text", { x: (left + width) / 2, y: height - 8, "text-anchor": "middle", "font-size": 12 }, options.x));
  parts.push(h("text", { x: 14, y: height / 2, "text-anchor": "middle", "font-size": 12, transform: `rotate(-90 14 ${height / 2})` }, options.title));
  const svg = h("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height, "font-family": "sans-serif" }, parts);
  return new XMLSerializer().serializeToString(svg);
}
