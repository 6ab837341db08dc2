// The live graph of workers and streams: columns in the direction of the data, one box for each group of workers.

import { PHASES, PHASE_NAMES, figure, h, percent, short } from "./dom.js";

const WIDTH = 204, HEIGHT = 78, GAP_X = 132, GAP_Y = 30, TOP = 24;
const WORKERS_OF = { trainer: "trainer", environment: "actor", inference: "actor", overhead: "actor", policy: "polic", replay: "replay", buffer: "buffers" };

/** Return edges in the direction of the data: a trainer asks for batches, which come from the replay. */
function flows(edges) {
  return edges.map((edge) => (edge.kind === "sample" ? { ...edge, source: edge.target, target: edge.source } : edge));
}

/** Return the column of each group: behind all groups whose data it gets. Cycles are cut where they close. */
export function layers(names, edges) {
  const after = new Map(names.map((name) => [name, []]));
  for (const { source, target, kind } of edges)
    if (kind !== "parameters" && source !== target && after.has(source) && after.has(target)) after.get(source).push(target);
  const column = new Map(names.map((name) => [name, 0]));
  const visit = (name, depth, path) => {
    if (path.has(name)) return;
    column.set(name, Math.max(column.get(name), depth));
    const longer = new Set(path).add(name);
    for (const next of after.get(name)) if (column.get(next) <= depth) visit(next, depth + 1, longer);
  };
  names.forEach((name) => visit(name, column.get(name), new Set()));
  return column;
}

function summary(group) {
  const parts = [`${group.count} worker${group.count === 1 ? "" : "s"}`];
  if (group.cpu_percent) parts.push(`${Math.round(group.cpu_percent)} % CPU`);
  if (group.rss_mb) parts.push(group.rss_mb < 1000 ? `${Math.round(group.rss_mb)} MB` : `${(group.rss_mb / 1000).toFixed(1)} GB`);
  return parts.join(" · ");
}

function node(group, x, y, isBottleneck, open) {
  const work = 1 - (group.busy.waiting ?? 0);
  const known = Object.keys(group.busy).length > 0;
  const text = PHASES.filter((phase) => group.busy[phase] > 0.005).map((phase) => `${PHASE_NAMES[phase]} ${percent(group.busy[phase])}`).join(", ");
  let at = x + 10;
  const bars = PHASES.filter((phase) => group.busy[phase] > 0).map((phase) => {
    const width = (WIDTH - 20) * group.busy[phase];
    at += width;
    return h(`rect.${phase}`, { x: at - width, y: y + 52, width, height: 8 });
  });
  const states = Object.entries(group.states).filter(([state]) => state !== "running").map(([state, number]) => `${number} ${state}`);
  const classes = `g.node${isBottleneck ? ".bottleneck" : ""}${group.states.running ? "" : ".ended"}`;
  return h(classes, { tabindex: 0, role: "button", "aria-label": `${group.name}: ${summary(group)}. ${text}`, "data-group": group.name,
    onclick: () => open(group.name), onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(group.name); } } },
    h("title", {}, text || "no work yet"),
    h("rect.box", { x, y, width: WIDTH, height: HEIGHT, rx: 8 }),
    h("text", { x: x + 10, y: y + 20, "font-weight": 600 }, group.name),
    h("text.small", { x: x + WIDTH - 10, y: y + 20, "text-anchor": "end" }, isBottleneck ? "bottleneck" : known ? `${percent(work)} busy` : ""),
    h("text.small", { x: x + 10, y: y + 38 }, summary(group)),
    h("rect.track", { x: x + 10, y: y + 52, width: WIDTH - 20, height: 8, rx: 3 }), bars,
    states.length ? h("text.small", { x: x + 10, y: y + 73 }, states.join(", ")) : null);
}

/** Return the lines of text at an edge, and the fill of its stream if it has one. */
function edgeState(edge, status, rates) {
  // With several policies, streams and memories are called `samples/POLICY`.
  const isOwn = (one) => status.policyCount < 2 || one.name.split("/").slice(1).join("/") === edge.stream;
  const streams = status.streams.filter((one) => one.kind === edge.kind && isOwn(one));
  if (edge.kind === "push") {
    const rate = streams.reduce((sum, one) => sum + (rates.get(one.name) ?? 0), 0);
    const filled = streams.length ? Math.max(...streams.map((one) => one.filled)) : null;
    const dropped = streams.reduce((sum, one) => sum + one.dropped, 0);
    const lines = [rate ? `${short(rate)} blocks/s` : "blocks"];
    if (status.max_lag || status.lag_max) lines.push(`lag ${status.lag_mean.toFixed(1)}, max ${status.lag_max} of ${status.max_lag}`);
    if (dropped) lines.push(`${short(dropped)} dropped`);
    return { lines, filled };
  }
  if (edge.kind === "request") {
    const rate = streams.reduce((sum, one) => sum + (rates.get(one.name) ?? 0), 0);
    const mean = streams.length ? streams.reduce((sum, one) => sum + one.batch_mean, 0) / streams.length : 0;
    return { lines: [rate ? `${short(rate)} batches/s` : "requests", mean ? `${short(mean)} lanes each` : ""].filter(Boolean), filled: null };
  }
  if (edge.kind === "sample") {
    const memories = status.replay.filter(isOwn);
    const size = memories.reduce((sum, one) => sum + one.size, 0), capacity = memories.reduce((sum, one) => sum + one.capacity, 0);
    const reached = memories.find((one) => one.reached !== null)?.reached;
    const lines = [capacity ? `${short(size)} of ${short(capacity)}` : "batches"];
    if (memories.length) lines.push("updates per decision", `${reached === undefined ? "–" : figure(reached)} of ${figure(memories[0].wanted)}`);
    const bound = memories[0]?.max_target_age ?? null;
    if (bound !== null) lines.push(`target age ${Math.max(...memories.map((one) => one.target_age ?? 0))} of ${bound}`);
    return { lines, filled: capacity ? size / capacity : null };
  }
  return { lines: ["parameters"], filled: null };
}

/** Return the prefix of the groups that limit the speed of a run, as its diagnosis says. */
export function bottleneckPrefix(sentence) {
  return WORKERS_OF[(sentence ?? "").split(/[ :]/)[0]] ?? null;
}

/** Draw the graph. `status` is the run's; `rates` has the flow of each stream; `open` is called with a group's name. */
export function drawGraph(status, groups, rates, open) {
  const names = groups.map((group) => group.name);
  const edges = flows(status.edges ?? []).filter((edge) => names.includes(edge.source) && names.includes(edge.target));
  const column = layers(names, edges);
  const columns = [];
  for (const group of groups) (columns[column.get(group.name)] ??= []).push(group);
  const dense = columns.filter(Boolean);
  const rows = Math.max(...dense.map((one) => one.length), 1);
  const width = dense.length * WIDTH + (dense.length - 1) * GAP_X + 40;
  const hasBack = edges.some((edge) => edge.source !== edge.target && column.get(edge.source) >= column.get(edge.target));
  const height = TOP + rows * HEIGHT + (rows - 1) * GAP_Y + (hasBack ? 56 : 12);
  const place = new Map();
  dense.forEach((members, c) => members.forEach((group, r) => {
    const top = TOP + ((rows - members.length) * (HEIGHT + GAP_Y)) / 2;
    place.set(group.name, { x: 20 + c * (WIDTH + GAP_X), y: top + r * (HEIGHT + GAP_Y) });
  }));
  if (status.replay.length && !edges.some((edge) => edge.kind === "sample")) // inside each trainer, without a stream of its own
    for (const { target } of edges.filter((edge) => edge.kind === "push")) edges.push({ source: target, target, kind: "sample", stream: "", where: "inline" });
  const prefix = status.state === "running" ? bottleneckPrefix(status.bottleneck) : null;
  const drawn = [], labels = [], inner = new Map();
  const seen = new Set();
  for (const edge of edges) {
    const name = `${edge.source} ${edge.target} ${edge.kind} ${edge.kind === "parameters" ? "" : edge.stream}`;
    if (seen.has(name)) continue;
    seen.add(name);
    if (edge.source === edge.target) { inner.set(edge.source, [...(inner.get(edge.source) ?? []), edge]); continue; }
    const from = place.get(edge.source), to = place.get(edge.target);
    const back = from.x >= to.x;
    const low = Math.max(from.y, to.y) + HEIGHT;
    const [x1, y1, x2, y2] = back ? [from.x + WIDTH / 2, from.y + HEIGHT, to.x + WIDTH / 2, to.y + HEIGHT] : [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
    const d = back ? `M${x1},${y1} C${x1},${low + 52} ${x2},${low + 52} ${x2},${y2 + 4}` : `M${x1},${y1} C${x1 + GAP_X / 2},${y1} ${x2 - GAP_X / 2},${y2} ${x2 - 4},${y2}`;
    drawn.push(h(`path.edge.${edge.kind}`, { d, "marker-end": "url(#arrow)" }, h("title", {}, `${edge.kind} stream ${edge.stream} (${edge.where})`)));
    if (edge.kind === "parameters") continue;
    const { lines, filled } = edgeState(edge, status, rates);
    const mx = (x1 + x2) / 2, my = back ? low + 30 : (y1 + y2) / 2;
    labels.push(h("g", {},
      lines.map((line, i) => h("text.small.label", { x: mx, y: my - 8 - 13 * (lines.length - 1 - i), "text-anchor": "middle" }, line)),
      filled === null ? null : [h("rect.track", { x: mx - 34, y: my + 4, width: 68, height: 5, rx: 2 }), h("rect.fill", { x: mx - 34, y: my + 4, width: 68 * Math.min(1, filled), height: 5, rx: 2 }, h("title", {}, `${percent(filled)} full`))]));
  }
  const nodes = groups.map((group) => {
    const { x, y } = place.get(group.name);
    const own = (inner.get(group.name) ?? []).map((edge) => {
      if (edge.kind !== "sample") return edge.kind === "request" ? "inference inline" : edge.kind;
      const [filled, , ratio] = edgeState(edge, { ...status, policyCount: 1 }, rates).lines;
      return ratio ? `replay ${filled}, ratio ${ratio}` : "replay inline";
    });
    return [node(group, x, y, prefix !== null && group.name.startsWith(prefix), open),
      own.length ? h("text.small", { x: x + 10, y: y - 6 }, own.some((text) => text.includes("ratio")) ? h("title", {}, "ratio: gradient steps per decision") : null, [...new Set(own)].join(", ")) : null];
  });
  // Text is never larger than elsewhere on the page; on a narrow screen the graph scrolls.
  return h("svg.graph", { viewBox: `0 0 ${width} ${height}`, width, height, style: { minWidth: `${Math.round(0.7 * width)}px` }, role: "group", "aria-label": "Graph of workers and streams" },
    h("defs", {}, h("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, h("path", { d: "M0,0 L8,4 L0,8 Z", fill: "currentColor" }))),
    drawn, nodes, labels);
}
