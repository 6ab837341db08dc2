// Tabs of a run without curves: workers, config, checkpoints and videos, logs.

import { busyBar, bytes, count, fill, h, legend, patch, stateBadge } from "./dom.js";
import { get } from "./server.js";

/** Choices that hold for all runs. */
const view = { group: "", offset: 0, log: "" };

/** Choose the group that the tab of workers shows. */
export function showWorkers(group) {
  Object.assign(view, { group, offset: 0 });
}

export class WorkersTab {
  constructor(page, body) {
    Object.assign(this, { page, body, turn: 0 });
    this.update();
  }

  choose(change) {
    Object.assign(view, change);
    this.update();
  }

  async update() {
    const { groups } = this.page;
    if (!groups.length) return void patch(this.body, h("p.dim", {}, "No workers."));
    const group = groups.find((one) => one.name === view.group) ?? groups[0];
    const turn = ++this.turn;
    let found;
    try {
      found = await get("workers", { key: this.page.key, group: group.name, offset: view.offset });
    } catch (error) {
      if (turn === this.turn && !this.closed) patch(this.body, h("p.dim", { role: "alert" }, error.message));
      return;
    }
    if (turn === this.turn && !this.closed) this.draw(groups, group, found);
  }

  draw(groups, group, found) {
    const heads = (names, numeric) => h("thead", {}, h("tr", {}, names.map((text, i) => h(numeric.includes(i) ? "th.num" : "th", {}, text))));
    patch(this.body,
      h("div.card.scroll", {}, h("table", {}, heads(["Group", "Workers", "Busy", "CPU", "Memory", "State"], [1, 3, 4]),
        h("tbody", {}, groups.map((one) => h("tr", { "data-key": one.name },
          h("td", {}, h("button", { type: "button", "aria-pressed": String(one === group), onclick: () => this.choose({ group: one.name, offset: 0 }) }, one.name)),
          h("td.num", {}, count(one.count)), h("td", {}, busyBar(one.busy)), h("td.num", {}, `${Math.round(one.cpu_percent)} %`), h("td.num", {}, bytes(one.rss_mb * 1e6)),
          h("td", {}, Object.entries(one.states).map(([state, number]) => `${number} ${state}`).join(", "))))))),
      legend(),
      h("div.card.scroll", {}, h("div.row", {}, h("h2.grow", {}, group.name), found.total > found.size ? [
        h("button", { type: "button", disabled: found.offset === 0, onclick: () => this.choose({ offset: Math.max(0, found.offset - found.size) }) }, "Previous"),
        h("span.dim", {}, `${count(found.offset + 1)}–${count(Math.min(found.total, found.offset + found.size))} of ${count(found.total)}`),
        h("button", { type: "button", disabled: found.offset + found.size >= found.total, onclick: () => this.choose({ offset: found.offset + found.size }) }, "Next")] : null),
        h("table", {}, heads(["Worker", "State", "Busy", "CPU", "Memory", "Host", "Process", "Restarts", "Log"], [3, 4, 6, 7]),
          h("tbody", {}, found.workers.map((worker) => h("tr", { "data-key": worker.name }, h("td", {}, worker.name), h("td", {}, stateBadge(worker.state)), h("td", {}, busyBar(worker.busy)),
            h("td.num", {}, `${Math.round(worker.cpu_percent)} %`), h("td.num", {}, bytes(worker.rss_mb * 1e6)), h("td", {}, worker.host || "this host"), h("td.num", {}, worker.pid || "–"), h("td.num", {}, worker.incarnation),
            h("td", {}, h("button", { type: "button", onclick: () => { view.log = worker.log; this.page.show("Logs"); } }, "Log"))))))));
  }

  close() { this.closed = true; }
}

export class ConfigTab {
  constructor(page, body) {
    this.page = page;
    const list = h("tbody");
    const others = h("select", { "aria-label": "Compare with another run" }, h("option", { value: "" }, "differences from another run …"));
    const state = { filter: "", all: false, other: "" };
    const again = (change) => { Object.assign(state, change); this.draw(list, state).catch((error) => fill(list, h("tr", {}, h("td", {}, error.message)))); };
    others.onchange = () => again({ other: others.value });
    get("runs").then(({ runs }) => others.append(...runs.filter((run) => run.key !== page.key).slice(0, 500).map((run) => h("option", { value: run.key }, run.group ? `${run.group}/${run.name}` : run.name)))).catch(() => {});
    fill(body, h("div.card", {}, h("div.row", {}, h("input", { type: "search", placeholder: "Find an option", "aria-label": "Find an option", oninput: (event) => again({ filter: event.target.value }) }),
      h("label", {}, h("input", { type: "checkbox", onchange: (event) => again({ all: event.target.checked }) }), " all options"), others), h("div.scroll", {}, h("table", {}, list))),
      h("div.card", {}, h("h2", {}, "Machine"), h("div.scroll", {}, h("table", {}, h("tbody", {}, Object.entries(page.detail.machine).map(([name, value]) => h("tr", {}, h("td.dim", {}, name), h("td", {}, value))))))));
    again({});
  }

  async draw(list, { filter, all, other }) {
    let rows = this.page.detail.options;
    if (other) {
      const theirs = new Map((await get("run", { key: other })).options.map((option) => [option.name, option.value]));
      const own = new Set(rows.map((option) => option.name));
      const more = [...theirs.keys()].filter((name) => !own.has(name)).map((name) => ({ name, value: "–", default: "–" }));
      rows = [...rows, ...more].map((option) => ({ ...option, other: theirs.get(option.name) ?? "–" })).filter((option) => option.value !== option.other);
    } else if (!all) rows = rows.filter((option) => option.changed);
    rows = rows.filter((option) => option.name.includes(filter));
    const cells = (option) => (other ? [option.default, option.other] : [option.default, option.recipe ?? ""]);
    fill(list, h("tr", {}, ["Option", "Value", "Default", other ? "Other run" : "Recipe"].map((text) => h("th", {}, text))),
      rows.map((option) => h("tr", {}, h("td", {}, h("code", {}, option.name)), h("td", {}, h("code", {}, option.value)), cells(option).map((text) => h("td.dim", {}, h("code", {}, text))))),
      rows.length ? null : h("tr", {}, h("td", { colspan: 4 }, h("span.dim", {}, "No differences."))));
  }
}

export class FilesTab {
  constructor(page, body) {
    Object.assign(this, { page, body });
    this.update();
  }

  update() {
    const { checkpoints, videos } = this.page.detail;
    patch(this.body,
      h("div.card.scroll", {}, h("h2", {}, "Checkpoints"), checkpoints.length
        ? h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Checkpoint"), h("th.num", {}, "Step"), h("th", {}, "Written"), h("th.num", {}, "Size"), h("th", {}))), h("tbody", {}, checkpoints.map((one) => h("tr", { "data-key": one.name }, h("td", {}, h("code", {}, one.name)), h("td.num", {}, count(one.step)), h("td", {}, new Date(1000 * one.when).toLocaleString()), h("td.num", {}, bytes(one.bytes)), h("td", {}, one.best ? "best" : "")))))
        : h("p.dim", {}, "None yet.")),
      h("div.card.media", {}, h("h2", {}, "Videos"), videos.length
        ? h("div.grid", {}, videos.map((video) => h("figure", { "data-key": video.name }, /\.gif$/.test(video.name) ? h("img", { src: video.url, alt: `Video ${video.name}` }) : h("video", { src: video.url, controls: true, loop: true, muted: true, "aria-label": `Video ${video.name}` }), h("figcaption.dim", {}, video.name))))
        : h("p.dim", {}, "None yet. “Record video” plays the newest checkpoint.")));
  }
}

export class LogsTab {
  constructor(page, body) {
    Object.assign(this, { page, body });
    this.select = h("select", { "aria-label": "Worker", onchange: () => { view.log = this.select.value; this.load(); } });
    this.text = h("pre", { tabindex: 0 }, "…");
    fill(body, h("div.card", {}, h("div.row", {}, this.select, h("button", { type: "button", onclick: () => this.load() }, "Refresh")), this.text));
    this.load();
  }

  /** The list of logs grows with the run; a chosen one stays, also if it is not among the first that are listed. */
  update() {
    const known = this.page.detail.logs;
    const names = !view.log || known.includes(view.log) ? known : [view.log, ...known];
    patch(this.select, names.map((one) => h("option", { value: one, selected: one === this.name }, one)));
  }

  async load() {
    const known = this.page.detail.logs;
    this.name = view.log || known[0];
    this.update();
    if (!this.name) return void fill(this.text, "No logs.");
    const name = this.name;
    let shown;
    try {
      shown = (await get("log", { key: this.page.key, name })).text || "(empty)";
    } catch (error) {
      shown = error.message;
    }
    if (name !== this.name) return;
    fill(this.text, shown);
    this.text.scrollTop = this.text.scrollHeight;
  }
}
