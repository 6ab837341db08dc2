// The page of all runs: a table to filter, sort and select.

import { ago, count, duration, figure, fill, h, patch, short, sparkline, stateBadge } from "./dom.js";
import { get } from "./server.js";

const COLUMNS = [
  ["state", "State", (run) => run.state],
  ["name", "Run", (run) => run.name],
  ["environment", "Environment", (run) => run.environment],
  ["algorithm", "Algorithm", (run) => run.algorithm],
  ["return", "Return", (run) => run.return_mean ?? -Infinity],
  ["curve", "", null],
  ["steps", "Steps", (run) => run.steps],
  ["fps", "Steps/s", (run) => run.fps],
  ["left", "Left", (run) => run.seconds_left ?? Infinity],
  ["host", "Host", (run) => run.hosts.join(" ")],
  ["when", "Last activity", (run) => -run.when],
];
const NUMERIC = new Set(["return", "steps", "fps", "left", "when"]);
const MAX_ROWS = 300;
const STATES = ["submitted", "queued", "starting", "running", "finished", "stopped", "failed", "killed", "damaged"];

/** State of the table, which survives visits of other pages. */
const view = { filter: "", state: "", sort: "when", descending: false, selected: new Set(), rows: new Map(), all: false, folded: new Set() };

export function selectedRuns() {
  return [...view.selected].filter((key) => view.rows.has(key));
}

export async function runsPage(main, events) {
  const found = await get("runs");
  let revision = found.revision;
  view.rows = new Map(found.runs.map((run) => [run.key, run]));
  document.getElementById("root").textContent = found.root;
  const table = h("div.scroll");
  const bar = h("div.row");
  const note = h("p.dim");
  fill(main, h("div.row", {}, h("h1.grow", {}, "Runs"),
    h("input", { type: "search", placeholder: "Filter: name, environment, algorithm …", "aria-label": "Filter runs", value: view.filter,
      oninput: (event) => { view.filter = event.target.value; draw(); } }),
    h("select", { "aria-label": "State", onchange: (event) => { view.state = event.target.value; draw(); } },
      ["", ...STATES].map((state) => h("option", { value: state, selected: state === view.state }, state || "all states")))),
    bar, table, note);
  const draw = () => drawTable(table, bar, note, draw);
  draw();
  let due = null;
  events.open("", {
    runs: ({ all, runs }, number) => {
      if (all) view.rows = new Map();
      for (const run of runs) view.rows.set(run.key, run);
      revision = number;
      due ??= setTimeout(() => { due = null; if (table.isConnected) draw(); }, 200);
    },
  }, () => revision);
}

function matches(run) {
  if (view.state && run.state !== view.state) return false;
  const text = `${run.group} ${run.name} ${run.environment} ${run.algorithm} ${run.hosts.join(" ")}`.toLowerCase();
  return view.filter.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function drawTable(place, bar, note, draw) {
  const column = COLUMNS.find(([id]) => id === view.sort);
  const sign = view.descending ? -1 : 1;
  const rows = [...view.rows.values()].filter(matches).sort((a, b) => {
    const [x, y] = [column[2](a), column[2](b)];
    return (x < y ? -1 : x > y ? 1 : a.name.localeCompare(b.name)) * sign;
  });
  const head = h("tr", {}, h("th", {}, h("span.dim", { title: "Select runs to compare" }, "☑")), COLUMNS.map(([id, title, value]) =>
    h(`th${NUMERIC.has(id) ? ".num" : ""}${["environment", "algorithm", "fps", "host", "when"].includes(id) ? ".wide" : ""}`, { "aria-sort": view.sort === id ? (view.descending ? "descending" : "ascending") : null },
      value === null ? title : h("button", { type: "button", onclick: () => { view.descending = view.sort === id && !view.descending; view.sort = id; draw(); } },
        title, view.sort === id ? (view.descending ? " ▾" : " ▴") : ""))));
  const shown = view.all ? rows : rows.slice(0, MAX_ROWS);
  const groups = new Map();
  for (const run of shown) groups.set(run.group, [...(groups.get(run.group) ?? []), run]);
  const body = [];
  for (const [group, members] of groups) {
    if (group) {
      const keys = members.map((run) => run.key);
      const folded = view.folded.has(group);
      body.push(h("tr.group", { "data-key": `group ${group}` }, h("td", {}, checkbox(keys, `Select all runs of ${group}`, draw)),
        h("td", { colspan: COLUMNS.length }, h("button", { type: "button", "aria-expanded": String(!folded), onclick: () => { folded ? view.folded.delete(group) : view.folded.add(group); draw(); } },
          folded ? "▸" : "▾"), ` ${group} `, h("span.dim", {}, summary(members)))));
      if (folded) continue;
    }
    body.push(...members.map((run) => row(run, draw)));
  }
  if (!body.length) body.push(h("tr", {}, h("td", { colspan: COLUMNS.length + 1 }, h("span.dim", {}, view.rows.size ? "No run matches." : "No runs yet. Start one: srl train CartPole-v1"))));
  patch(place, h("table", {}, h("thead", {}, head), h("tbody", {}, body)));
  patch(note, rows.length > shown.length ? [`${shown.length} of ${rows.length} runs. `, h("button", { type: "button", onclick: () => { view.all = true; draw(); } }, "Show all")] : `${rows.length} run${rows.length === 1 ? "" : "s"}`);
  const chosen = selectedRuns();
  patch(bar, chosen.length ? [h("span", {}, `${chosen.length} selected`), h("a", { href: `#/compare?${chosen.map((key) => `run=${encodeURIComponent(key)}`).join("&")}` }, h("button.primary", { type: "button", tabindex: -1 }, "Compare")),
    h("button", { type: "button", onclick: () => { view.selected.clear(); draw(); } }, "Clear")] : null);
}

/** Return the number of runs of a group, their states and the mean of their returns. */
function summary(members) {
  const states = members.map((run) => run.state), known = members.map((run) => run.return_mean).filter((value) => value !== null);
  const each = [...new Set(states)].map((state) => `${states.filter((one) => one === state).length} ${state}`);
  const mean = known.length ? `, mean return ${figure(known.reduce((a, b) => a + b, 0) / known.length)}` : "";
  return `${members.length} run${members.length === 1 ? "" : "s"}: ${each.join(", ")}${mean}`;
}

/** Names of a sweep's runs begin with that of the sweep. */
function shortName(run) {
  const begin = `${run.group.split("/").at(-1)}-`;
  return run.group && run.name.startsWith(begin) ? run.name.slice(begin.length) : run.name;
}

function checkbox(keys, label, draw) {
  const all = keys.every((key) => view.selected.has(key));
  return h("input", { type: "checkbox", checked: all, "aria-label": label, onchange: (event) => {
    for (const key of keys) event.target.checked ? view.selected.add(key) : view.selected.delete(key);
    draw();
  } });
}

function returns(run) {
  const each = Object.entries(run.returns);
  if (each.length) return each.map(([name, value]) => h("div", {}, `${name} ${figure(value)}`));
  return figure(run.return_mean);
}

function row(run, draw) {
  return h(run.group ? "tr.member" : "tr", { "data-key": run.key },
    h("td", {}, checkbox([run.key], `Select ${run.name}`, draw)),
    h("td", {}, stateBadge(run.state)),
    h("td.name", {}, h("a", { href: `#/run/${encodeURIComponent(run.key)}`, title: run.name }, shortName(run)), run.error ? h("div.dim", {}, run.error) : null),
    h("td.wide", {}, run.environment), h("td.wide", {}, run.algorithm),
    h("td.num", {}, returns(run)), h("td", {}, sparkline(run.curve)),
    h("td.num", { title: run.target_steps ? `${count(run.steps)} of ${count(run.target_steps)}` : count(run.steps) }, short(run.steps)),
    h("td.num.wide", {}, run.fps ? short(run.fps) : "–"), h("td.num", {}, run.seconds_left === null ? "–" : duration(run.seconds_left)),
    h("td.wide", {}, run.hosts.slice(0, 2).join(", "), run.hosts.length > 2 ? ` +${run.hosts.length - 2}` : ""),
    h("td.num.wide", {}, ago(run.when)));
}
