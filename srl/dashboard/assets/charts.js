// Curves with uPlot: lines over steps or time, intervals, logarithmic axes, and files of them.

import uPlot from "./vendor/uPlot.esm.js";
import { count, duration, figure, h, short } from "./dom.js";

// Okabe and Ito's palette, safe for color-blind readers.
export const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8c6d31", "#7f7f7f"];

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

/**
 * Return a card with a chart. `curves` are {label, x, y, low?, high?}; `options` are {title, x: "steps" | "time", log, smooth, events}.
 */
export function chart(curves, options) {
  const place = h("div");
  const card = h("div.chart.card", {}, h("h3", {}, options.title), place);
  const shown = curves.filter((curve) => curve.x.length);
  if (!shown.length) {
    place.append(h("p.dim", {}, "No values yet."));
    return card;
  }
  const tables = [];
  const series = [{ label: options.x === "time" ? "time" : "step", value: (_, v) => (v === null ? "–" : options.x === "time" ? duration(v) : count(v)) }];
  const bands = [];
  shown.forEach((curve, index) => {
    const color = COLORS[index % COLORS.length];
    const at = series.length;
    tables.push([curve.x, smoothed(curve.y, options.smooth)]);
    series.push({ label: curve.label, stroke: color, width: 1.6, spanGaps: true, points: { show: curve.x.length < 3 }, value: (_, v) => figure(v) });
    if (curve.low) {
      tables.push([curve.x, curve.low, curve.high]);
      series.push({ label: `${curve.label} low`, stroke: color, width: 0, spanGaps: true, points: { show: false } });
      series.push({ label: `${curve.label} high`, stroke: color, width: 0, spanGaps: true, points: { show: false } });
      bands.push({ series: [at + 2, at + 1], fill: `${color}30` });
    }
  });
  const data = uPlot.join(tables);
  const axis = { stroke: style("--dim"), grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line"), width: 1 }, font: "11px system-ui" };
  const width = () => Math.max(240, place.clientWidth || card.clientWidth - 28 || 380);
  const config = {
    width: width(), height: options.height ?? 200, series, bands,
    scales: { x: { time: false }, y: { distr: options.log ? 3 : 1 } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map((v) => (options.x === "time" ? duration(v) : short(v))) },
      { ...axis, size: 62, values: (_, ticks) => ticks.map((v) => (v === null ? "" : figure(v))) },
    ],
    legend: { live: true }, cursor: { drag: { x: true, y: false }, sync: { key: options.sync ?? null } },
    plugins: options.events?.length ? [eventLines(options)] : [],
  };
  queueMicrotask(() => {
    config.width = width();
    card.plot = new uPlot(config, data, place);
    // Rows of the legend for the edges of intervals say nothing.
    series.forEach((one, i) => { if (/ (low|high)$/.test(one.label)) card.plot.root.querySelectorAll(".u-series")[i].style.display = "none"; });
    new ResizeObserver(() => { if (card.isConnected && Math.abs(width() - card.plot.width) > 2) card.plot.setSize({ width: width(), height: config.height }); }).observe(card);
  });
  card.curves = shown;
  return card;
}

function eventLines(options) {
  return {
    hooks: {
      draw: (plot) => {
        const { ctx } = plot;
        ctx.save();
        ctx.setLineDash([3, 3]);
        for (const event of options.events) {
          const x = plot.valToPos(options.x === "time" ? event.elapsed : event.step, "x", true);
          if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
          ctx.strokeStyle = style(event.event === "checkpoint" ? "--line" : "--warn");
          ctx.beginPath(); ctx.moveTo(x, plot.bbox.top); ctx.lineTo(x, plot.bbox.top + plot.bbox.height); ctx.stroke();
        }
        ctx.restore();
      },
    },
  };
}

export function download(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export function asCSV(curves, axis) {
  const rows = [["curve", axis, "value", "low", "high"]];
  for (const curve of curves)
    curve.x.forEach((x, i) => rows.push([curve.label, x, curve.y[i] ?? "", curve.low?.[i] ?? "", curve.high?.[i] ?? ""]));
  return rows.map((row) => row.map((cell) => (/[",\n]/.test(String(cell)) ? `"${String(cell).replaceAll('"', '""')}"` : cell)).join(",")).join("\n");
}

export function asPNG(card, name) {
  card.plot.root.querySelector("canvas").toBlob((blob) => download(name, blob));
}

/** Draw the curves as a standalone SVG file. */
export function asSVG(curves, options) {
  const [width, height, left, bottom, top, right] = [640, 400, 64, 44, 16, 16];
  const every = curves.flatMap((c) => [...c.y, ...(c.low ?? []), ...(c.high ?? [])]).filter((v) => v !== null && (!options.log || v > 0));
  const scale = options.log ? Math.log10 : (v) => v;
  const xs = curves.flatMap((c) => c.x);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)], [y0, y1] = [scale(Math.min(...every)), scale(Math.max(...every))];
  const px = (x) => (left + ((width - left - right) * (x - x0)) / (x1 - x0 || 1)).toFixed(1);
  const py = (y) => (height - bottom - ((height - bottom - top) * (scale(y) - y0)) / (y1 - y0 || 1)).toFixed(1);
  const usable = (v) => v !== null && (!options.log || v > 0);
  const parts = [h("rect", { width, height, fill: "#fff" })];
  for (let i = 0; i <= 4; i++) {
    const y = y0 + ((y1 - y0) * i) / 4, x = x0 + ((x1 - x0) * i) / 4, at = height - bottom - ((height - bottom - top) * i) / 4;
    parts.push(h("path", { d: `M${left},${at}H${width - right}`, stroke: "#e6e6e6" }));
    parts.push(h("text", { x: left - 6, y: at + 4, "text-anchor": "end", "font-size": 11 }, figure(options.log ? 10 ** y : y)));
    parts.push(h("text", { x: px(x), y: height - bottom + 16, "text-anchor": "middle", "font-size": 11 }, options.x === "time" ? duration(x) : short(x)));
  }
  curves.forEach((curve, index) => {
    const color = COLORS[index % COLORS.length];
    const line = (ys) => curve.x.map((x, i) => [x, ys[i]]).filter(([, y]) => usable(y)).map(([x, y]) => `${px(x)},${py(y)}`);
    if (curve.low) parts.push(h("path", { d: `M${[...line(curve.high), ...line(curve.low).reverse()].join("L")}Z`, fill: color, "fill-opacity": 0.18 }));
    parts.push(h("path", { d: `M${line(smoothed(curve.y, options.smooth)).join("L")}`, fill: "none", stroke: color, "stroke-width": 1.6 }));
    parts.push(h("text", { x: left + 10, y: top + 14 + 15 * index, fill: color, "font-size": 12 }, curve.label));
  });
  parts.push(h("text", { x: (left + width) / 2, y: height - 8, "text-anchor": "middle", "font-size": 12 }, options.x === "time" ? "time" : "steps"));
  parts.push(h("text", { x: 14, y: height / 2, "text-anchor": "middle", "font-size": 12, transform: `rotate(-90 14 ${height / 2})` }, options.title));
  const svg = h("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height, "font-family": "sans-serif" }, parts);
  return new XMLSerializer().serializeToString(svg);
}
