// The page of one run: what it does now, its graph, curves, events, workers, config, checkpoints and videos.

import { asCSV, asPNG, asSVG, chart, download } from "./charts.js";
import { bytes, busyBar, count, duration, figure, fill, h, legend, short, stateBadge } from "./dom.js";
import { drawGraph } from "./graph.js";
import { get, post } from "./server.js";

const TABS = ["Overview", "Curves", "Workers", "Config", "Checkpoints and videos", "Logs"];
const FIRST_CURVES = ["return", "eval/return", "length", "train_fps"];
const SERIES_SECONDS = 1.5;
const LIVE = new Set(["starting", "running"]);
/** Choices that hold for all runs. */
const view = { tab: "Overview", x: "steps", log: false, smooth: 0, metrics: null, group: "", offset: 0, log_of: "" };

export async function runPage(main, events, key) {
  const run = new RunPage(main, key, await get("run", { key }));
  run.draw();
  events.open(key, { run: (update) => run.update(update) });
  return () => run.close();
}

class RunPage {
  constructor(main, key, detail) {
    Object.assign(this, { main, key, detail, status: detail.status, groups: detail.groups, rates: new Map(), before: null, loaded: 0, timer: null, closed: false });
    this.head = h("div");
    this.tabs = h("div.tabs", { role: "tablist" });
    this.body = h("div");
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
  }

  draw() {
    fill(this.main, this.head, this.tabs, this.body);
    this.drawHead();
    this.drawTabs();
    this.drawBody();
  }

  update({ status, groups, events, gone }) {
    if (this.closed) return;
    if (gone) {
      fill(this.head, h("div.card.error", { role: "alert" }, h("b", {}, "This run's directory is gone."), " Its last figures stay below. ", h("a", { href: "#/" }, "All runs")));
      return;
    }
    this.measure(status);
    Object.assign(this, { status, groups });
    if (events?.length) this.detail.events.push(...events);
    this.drawHead();
    if (view.tab === "Overview") this.drawOverview();
    if (view.tab === "Workers") this.drawWorkers();
    if (view.tab === "Curves" && performance.now() - this.loaded > 1000 * SERIES_SECONDS && !this.loading) this.drawCurves(true);
  }

  /** Compute the flow of each stream between two states of the run. */
  measure(status) {
    const now = performance.now() / 1000;
    if (this.before && now - this.before.now > 0.5) {
      for (const stream of status.streams) {
        const earlier = this.before.consumed.get(stream.name);
        if (earlier !== undefined) this.rates.set(stream.name, Math.max(0, (stream.consumed - earlier) / (now - this.before.now)));
      }
    }
    if (!this.before || now - this.before.now > 0.5) this.before = { now, consumed: new Map(status.streams.map((one) => [one.name, one.consumed])) };
  }

  drawTabs() {
    fill(this.tabs, TABS.map((name) => h("button", { type: "button", role: "tab", "aria-selected": String(view.tab === name),
      onclick: () => { view.tab = name; this.drawTabs(); this.drawBody(); } }, name)));
  }

  drawBody() {
    fill(this.body);
    ({ Overview: () => this.drawOverview(), Curves: () => this.drawCurves(), Workers: () => this.drawWorkers(), Config: () => this.drawConfig(),
      "Checkpoints and videos": () => this.drawFiles(), Logs: () => this.drawLogs() })[view.tab]();
  }

  drawHead() {
    const s = this.status;
    const share = s.target_steps ? Math.min(1, s.steps / s.target_steps) : null;
    const left = s.state === "running" && s.train_fps > 0 && s.target_steps > s.steps ? (s.target_steps - s.steps) / s.train_fps : null;
    const focus = document.activeElement?.dataset?.action;
    fill(this.head,
      h("div.row", {}, h("h1.grow", {}, s.run, " ", stateBadge(s.state)), this.actions()),
      h("div.dim", {}, [s.environment, s.algorithm, s.path].filter(Boolean).join(" · ")),
      share === null ? null : h("div.progress", { role: "progressbar", "aria-valuenow": Math.round(100 * share), "aria-label": "Steps" }, h("i", { style: { width: `${100 * share}%` } })),
      h("div.figures.card", {}, this.figures(left).map(([label, value]) => h("div", {}, h("b", {}, value), h("span", {}, label)))),
      s.reason && !LIVE.has(s.state) ? h(`div.card${s.state === "failed" ? ".error" : ""}`, {}, h("pre", {}, s.reason)) : null,
      s.bottleneck && s.state === "running" ? h("div.card.advice", {}, h("b", {}, s.bottleneck), s.advice ? h("div", {}, "To change it: ", h("code", {}, s.advice)) : null) : null);
    if (focus) this.head.querySelector(`[data-action="${focus}"]`)?.focus();
  }

  figures(left) {
    const s = this.status;
    const policies = Object.entries(s.policies ?? {});
    const returns = policies.length > 1
      ? policies.map(([name, policy]) => [`return of ${name}${policy.learning ? "" : " (frozen)"}`, figure(policy.return_mean)])
      : [["return, last 100 episodes", figure(s.return_mean)], ["episode length", figure(s.length_mean)]];
    const evaluated = policies.filter(([, policy]) => policy.evaluation).map(([name, policy]) => [`evaluation${policies.length > 1 ? ` of ${name}` : ""}`, figure(policy.evaluation.return_mean)]);
    const facts = Object.entries(s.facts ?? {}).slice(0, 4).map(([name, value]) => [name, figure(value)]);
    return [...returns, ...evaluated, ...facts, ["steps", s.target_steps ? `${short(s.steps)} / ${short(s.target_steps)}` : short(s.steps)],
      ["steps learned per second", short(s.train_fps)], ["decisions per second", short(s.env_fps)], ["updates", count(s.updates)], ["episodes", count(s.episodes)],
      ["elapsed", duration(s.elapsed)], ...(left === null ? [] : [["left", duration(left)]]), ["replaced workers", count(s.restarts)],
      ...(Object.keys(s.refused ?? {}).length ? [["refused connections", count(Object.values(s.refused).reduce((a, b) => a + b, 0))]] : [])];
  }

  actions() {
    const live = this.detail.live && LIVE.has(this.status.state);
    const button = (name, text, act, enabled = live, style = "") => h(`button${style}`, { type: "button", disabled: !enabled, "data-action": name, title: enabled ? null : "only for a run that is active", onclick: act }, text);
    return [
      button("save", "Save checkpoint", () => this.ask("Write a checkpoint now?", { action: "save" })),
      button("evaluate", "Evaluate", () => this.ask("Evaluate the newest version now?", { action: "evaluate" })),
      button("scale", "Scale …", () => this.askScale()),
      button("record", "Record video", () => this.ask("Record a video of the newest checkpoint? This takes a while and uses a core.", { action: "record" }), this.detail.checkpoints.length > 0),
      button("stop", "Stop …", () => this.ask("Stop this run after a last checkpoint? `srl resume` continues it.", { action: "stop" }), live, ".danger"),
    ];
  }

  ask(question, body, more = null) {
    const dialog = document.getElementById("dialog");
    const answer = h("p", { role: "status" });
    const send = async () => {
      confirm.disabled = true;
      fill(answer, "…");
      try {
        fill(answer, (await post("action", { key: this.key, ...(typeof body === "function" ? body() : body) })).text);
        setTimeout(() => dialog.close(), 1200);
        if (view.tab === TABS[4]) this.reload();
      } catch (error) {
        fill(answer, h("span", { style: { color: "var(--bad)" } }, error.message));
        confirm.disabled = false;
      }
    };
    const confirm = h("button.primary", { type: "button", onclick: send, "data-action": "confirm" }, "Yes");
    fill(dialog, h("p", {}, h("b", {}, this.status.run)), h("p", {}, question), more, answer, h("div.row", {}, confirm, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
    dialog.showModal();
  }

  askScale() {
    const group = h("select", { "aria-label": "Group of workers" }, this.groups.map((one) => h("option", { value: one.name }, `${one.name} (${one.count})`)));
    const number = h("input", { type: "number", min: 1, value: this.groups[0]?.count ?? 1, "aria-label": "Number of workers" });
    this.ask("Change the number of workers of a group.", () => ({ action: "scale", group: group.value, count: Number(number.value) }), h("p.row", {}, group, number));
  }

  async reload() {
    this.detail = await get("run", { key: this.key });
    this.drawBody();
  }

  drawOverview() {
    const s = this.status;
    const graph = this.groups.length ? drawGraph({ ...s, policyCount: Object.keys(s.policies ?? {}).length }, this.groups, this.rates, (group) => { Object.assign(view, { tab: "Workers", group, offset: 0 }); this.drawTabs(); this.drawBody(); }) : h("p.dim", {}, "This run ended before the graph was recorded.");
    const parts = [h("div.card", {}, h("h2", {}, "Workers and streams"), h("div.scroll", {}, graph), legend()), this.eventsCard()];
    if (this.body.firstChild?.id === "overview") {
      const [graphCard, eventsCard] = parts;
      const focused = document.activeElement?.dataset?.group;
      const place = this.body.firstChild;
      place.children[0].replaceWith(graphCard);
      place.children[1].replaceWith(eventsCard);
      if (focused) place.querySelector(`[data-group="${CSS.escape(focused)}"]`)?.focus();
      return;
    }
    const curves = h("div.grid");
    fill(this.body, h("div", { id: "overview" }, ...parts, curves, this.league()));
    this.load(this.firstMetrics()).then((cards) => fill(curves, cards)).catch((error) => fill(curves, h("p.dim", {}, error.message)));
  }

  firstMetrics() {
    const known = this.detail.metrics;
    const returns = known.filter((name) => FIRST_CURVES.includes(name) || /^[^/]+\/(return|eval\/return)$/.test(name));
    return [...new Set([...FIRST_CURVES.filter((name) => returns.includes(name)), ...returns])].slice(0, 6);
  }

  eventsCard() {
    const events = this.detail.events.slice(-200).reverse();
    return h("div.card", {}, h("h2", {}, "Events"), events.length
      ? h("ol.events", { tabindex: 0 }, events.map((event) => h("li", {}, h("time", {}, duration(event.elapsed)), h("span.dim", {}, event.event === "message" ? "" : event.event), h("span", { style: { whiteSpace: "pre-wrap" } }, event.text))))
      : h("p.dim", {}, "Nothing has happened yet."));
  }

  league() {
    const league = this.detail.league;
    if (!league) return null;
    const color = (value) => (value === null ? null : { background: `color-mix(in srgb, var(--${value >= 0.5 ? "good" : "bad"}) ${Math.round(140 * Math.abs(value - 0.5))}%, transparent)` });
    const ratings = Object.entries(league.ratings).sort((a, b) => b[1] - a[1]);
    return h("div.card", {}, h("h2", {}, "League"), h("p.dim", {}, "Mean points of the player of a row against the player of a column (win 1, draw 0.5)."),
      h("div.scroll", {}, h("table.heat", {}, h("thead", {}, h("tr", {}, h("th"), league.names.map((name) => h("th", {}, name)))),
        h("tbody", {}, league.names.map((name, i) => h("tr", {}, h("th", {}, name), league.values[i].map((value) => h("td", { style: color(value) }, figure(value)))))))),
      ratings.length ? h("p", {}, "Ratings: ", ratings.map(([name, value]) => `${name} ${figure(value)}`).join(", ")) : null);
  }

  /** Return cards with the curves of these metrics. */
  async load(names) {
    if (!names.length) return [h("p.dim", {}, "No metrics yet.")];
    const { series } = await get("series", { key: this.key, name: names, x: view.x });
    this.loaded = performance.now();
    const events = this.detail.events.filter((event) => event.event !== "checkpoint");
    return names.map((name) => {
      const options = { title: name, x: view.x, log: view.log, smooth: view.smooth, events, sync: this.key };
      const found = series[name];
      const card = chart(found ? [{ label: name, x: found.x, y: found.y }] : [], options);
      if (found?.x.length) card.append(exportButtons(card, options, `${this.status.run} ${name}`));
      return card;
    });
  }

  async drawCurves(keep = false) {
    view.metrics ??= new Set();
    const chosen = this.detail.metrics.filter((name) => view.metrics.has(name));
    const names = chosen.length ? chosen : this.firstMetrics();
    if (!keep || !this.curves?.isConnected) {
      this.curves = h("div.grid");
      this.picker = h("div.card");
      fill(this.body, curveControls(() => this.drawCurves()), h("details.card", {}, h("summary", {}, `Metrics (${this.detail.metrics.length})`), this.metricChoice()), this.curves);
    }
    this.loading = true;
    try {
      const cards = await this.load(names);
      if (!this.closed && view.tab === "Curves") fill(this.curves, cards);
    } catch (error) {
      fill(this.curves, h("p.dim", {}, error.message));
    } finally {
      this.loading = false;
    }
  }

  metricChoice() {
    const list = h("div.row");
    const draw = (filter) => fill(list, this.detail.metrics.filter((name) => name.includes(filter)).slice(0, 400).map((name) => h("label", {}, h("input", { type: "checkbox", checked: view.metrics.has(name),
      onchange: (event) => { event.target.checked ? view.metrics.add(name) : view.metrics.delete(name); this.drawCurves(true); } }), " ", name)));
    draw("");
    return [h("input", { type: "search", placeholder: "Find a metric", "aria-label": "Find a metric", oninput: (event) => draw(event.target.value) }), list];
  }

  async drawWorkers() {
    const groups = this.groups;
    if (!groups.length) return void fill(this.body, h("p.dim", {}, "No workers."));
    const group = groups.find((one) => one.name === view.group) ?? groups[0];
    const asked = `${group.name}/${view.offset}`;
    const page = await get("workers", { key: this.key, group: group.name, offset: view.offset });
    if (this.closed || view.tab !== "Workers" || (asked !== `${view.group || groups[0].name}/${view.offset}`)) return;
    const pages = Math.ceil(page.total / page.size);
    fill(this.body,
      h("div.card.scroll", {}, h("table", {}, h("thead", {}, h("tr", {}, ["Group", "Workers", "Busy", "CPU", "Memory", "State"].map((text, i) => h(i === 1 || i === 3 || i === 4 ? "th.num" : "th", {}, text)))),
        h("tbody", {}, groups.map((one) => h("tr", {}, h("td", {}, h("button", { type: "button", "aria-pressed": String(one === group), onclick: () => { Object.assign(view, { group: one.name, offset: 0 }); this.drawWorkers(); } }, one.name)),
          h("td.num", {}, count(one.count)), h("td", {}, busyBar(one.busy)), h("td.num", {}, `${Math.round(one.cpu_percent)} %`), h("td.num", {}, bytes(one.rss_mb * 1e6)),
          h("td", {}, Object.entries(one.states).map(([state, number]) => `${number} ${state}`).join(", "))))))),
      legend(),
      h("div.card.scroll", {}, h("div.row", {}, h("h2.grow", {}, group.name), pages > 1 ? [
        h("button", { type: "button", disabled: view.offset === 0, onclick: () => { view.offset -= page.size; this.drawWorkers(); } }, "Previous"),
        h("span.dim", {}, `${page.offset + 1}–${Math.min(page.total, page.offset + page.size)} of ${count(page.total)}`),
        h("button", { type: "button", disabled: view.offset + page.size >= page.total, onclick: () => { view.offset += page.size; this.drawWorkers(); } }, "Next")] : null),
        h("table", {}, h("thead", {}, h("tr", {}, ["Worker", "State", "Busy", "CPU", "Memory", "Host", "Process", "Restarts", "Log"].map((text, i) => h([3, 4, 6, 7].includes(i) ? "th.num" : "th", {}, text)))),
          h("tbody", {}, page.workers.map((worker) => h("tr", {}, h("td", {}, worker.name), h("td", {}, stateBadge(worker.state)), h("td", {}, busyBar(worker.busy)), h("td.num", {}, `${Math.round(worker.cpu_percent)} %`),
            h("td.num", {}, bytes(worker.rss_mb * 1e6)), h("td", {}, worker.host || "this host"), h("td.num", {}, worker.pid || "–"), h("td.num", {}, worker.incarnation),
            h("td", {}, h("button", { type: "button", onclick: () => { view.log_of = worker.name.replaceAll("/", "-"); view.tab = "Logs"; this.drawTabs(); this.drawBody(); } }, "Log"))))))));
  }

  drawConfig() {
    const list = h("tbody");
    const others = h("select", { "aria-label": "Compare with another run" }, h("option", { value: "" }, "differences from another run …"));
    const draw = async (filter, all, other) => {
      let rows = this.detail.options;
      let head = "Recipe";
      if (other) {
        const theirs = new Map((await get("run", { key: other })).options.map((option) => [option.name, option.value]));
        rows = rows.map((option) => ({ ...option, other: theirs.get(option.name) ?? "–" })).filter((option) => option.value !== option.other);
        head = "Other run";
      } else if (!all) rows = rows.filter((option) => option.changed);
      rows = rows.filter((option) => option.name.includes(filter));
      const cells = (option) => (other ? [option.default, option.other] : [option.default, option.recipe ?? ""]);
      fill(list, h("tr", {}, ["Option", "Value", "Default", head].map((text) => h("th", {}, text))), rows.map((option) => h("tr", {}, h("td", {}, h("code", {}, option.name)), h("td", {}, h("code", {}, option.value)), cells(option).map((text) => h("td.dim", {}, h("code", {}, text))))),
        rows.length ? null : h("tr", {}, h("td", { colspan: 4 }, h("span.dim", {}, "No differences."))));
    };
    const state = { filter: "", all: false, other: "" };
    const again = (change) => { Object.assign(state, change); draw(state.filter, state.all, state.other).catch((error) => fill(list, h("tr", {}, h("td", {}, error.message)))); };
    others.addEventListener("change", () => again({ other: others.value }));
    get("runs").then(({ runs }) => others.append(...runs.filter((run) => run.key !== this.key).slice(0, 500).map((run) => h("option", { value: run.key }, run.group ? `${run.group}/${run.name}` : run.name)))).catch(() => {});
    fill(this.body, h("div.card", {}, h("div.row", {}, h("input", { type: "search", placeholder: "Find an option", "aria-label": "Find an option", oninput: (event) => again({ filter: event.target.value }) }),
      h("label", {}, h("input", { type: "checkbox", onchange: (event) => again({ all: event.target.checked }) }), " all options"), others), h("div.scroll", {}, h("table", {}, list))),
      h("div.card", {}, h("h2", {}, "Machine"), h("table", {}, h("tbody", {}, Object.entries(this.detail.machine).map(([name, value]) => h("tr", {}, h("td.dim", {}, name), h("td", {}, value)))))));
    again({});
  }

  drawFiles() {
    fill(this.body,
      h("div.card.scroll", {}, h("h2", {}, "Checkpoints"), this.detail.checkpoints.length
        ? h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Checkpoint"), h("th.num", {}, "Step"), h("th", {}, "Written"), h("th.num", {}, "Size"), h("th", {}))), h("tbody", {}, this.detail.checkpoints.map((one) => h("tr", {}, h("td", {}, h("code", {}, one.name)), h("td.num", {}, count(one.step)), h("td", {}, new Date(1000 * one.when).toLocaleString()), h("td.num", {}, bytes(one.bytes)), h("td", {}, one.best ? "best" : "")))))
        : h("p.dim", {}, "None yet.")),
      h("div.card.media", {}, h("h2", {}, "Videos"), this.detail.videos.length
        ? h("div.grid", {}, this.detail.videos.map((video) => h("figure", {}, /\.gif$/.test(video.name) ? h("img", { src: video.url, alt: `Video ${video.name}` }) : h("video", { src: video.url, controls: true, loop: true }), h("figcaption.dim", {}, video.name))))
        : h("p.dim", {}, "None yet. “Record video” plays the newest checkpoint.")));
  }

  async drawLogs() {
    const names = this.detail.logs;
    if (!names.length) return void fill(this.body, h("p.dim", {}, "No logs."));
    const name = names.includes(view.log_of) ? view.log_of : names[0];
    const place = h("pre", { tabindex: 0 }, "…");
    fill(this.body, h("div.card", {}, h("div.row", {}, h("select", { "aria-label": "Worker", onchange: (event) => { view.log_of = event.target.value; this.drawLogs(); } }, names.map((one) => h("option", { value: one, selected: one === name }, one))),
      h("button", { type: "button", onclick: () => this.drawLogs() }, "Refresh")), place));
    try {
      const { text } = await get("log", { key: this.key, name });
      fill(place, text || "(empty)");
      place.scrollTop = place.scrollHeight;
    } catch (error) {
      fill(place, error.message);
    }
  }
}

/** Controls of axes and smoothing, which all curves share. */
export function curveControls(changed) {
  const set = (name, value) => { view[name] = value; changed(); };
  return h("div.row.card", {},
    h("label", {}, "Against ", h("select", { onchange: (event) => set("x", event.target.value) }, [["steps", "steps"], ["time", "time"]].map(([value, text]) => h("option", { value, selected: view.x === value }, text)))),
    h("label", {}, h("input", { type: "checkbox", checked: view.log, onchange: (event) => set("log", event.target.checked) }), " logarithmic"),
    h("label", {}, "Smoothing ", h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: view.smooth, onchange: (event) => set("smooth", Number(event.target.value)) })));
}

export function curveOptions() {
  return { x: view.x, log: view.log, smooth: view.smooth };
}

export function exportButtons(card, options, name) {
  const file = name.replaceAll(/[^A-Za-z0-9._-]+/g, "-");
  return h("div.row", {}, h("button", { type: "button", onclick: () => asPNG(card, `${file}.png`) }, "PNG"),
    h("button", { type: "button", onclick: () => download(`${file}.svg`, asSVG(card.curves, options), "image/svg+xml") }, "SVG"),
    h("button", { type: "button", onclick: () => download(`${file}.csv`, asCSV(card.curves, options.x), "text/csv") }, "CSV"));
}
