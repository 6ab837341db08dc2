// The page of one run: what it does now, what can be done with it, and tabs with everything else.

import { count, duration, figure, fill, h, patch, short, stateBadge } from "./dom.js";
import { CurvesTab, OverviewTab } from "./run_curves.js";
import { ConfigTab, FilesTab, LogsTab, WorkersTab } from "./run_tabs.js";
import { get, post } from "./server.js";

const TABS = { Overview: OverviewTab, Curves: CurvesTab, Workers: WorkersTab, Config: ConfigTab, "Checkpoints and videos": FilesTab, Logs: LogsTab };
const LIVE = new Set(["starting", "running"]);
/** Choices that hold for all runs. */
const view = { tab: "Overview" };

/** Show a run. `tab` is named by the address, so that a link shows what its sender saw. */
export async function runPage(main, events, key, tab) {
  const address = location.hash, detail = await get("run", { key });
  if (location.hash !== address) return null; // another page was opened meanwhile
  if (Object.hasOwn(TABS, tab)) view.tab = tab;
  const page = new RunPage(main, key, detail);
  page.draw();
  events.open(key, { run: (update) => page.update(update) }, () => page.detail.events_begin + page.detail.events.length);
  return () => page.close();
}

class RunPage {
  constructor(main, key, detail) {
    Object.assign(this, { main, key, detail, status: detail.status, groups: detail.groups, rates: new Map(), before: null, closed: false });
    this.head = h("div");
    this.tabs = h("div.tabs", { role: "tablist" });
    this.body = h("div");
  }

  close() {
    this.closed = true;
    this.tab?.close?.();
  }

  draw() {
    fill(this.main, this.head, this.tabs, this.body);
    this.drawHead();
    this.show(view.tab);
  }

  /** Show a tab. */
  show(name) {
    view.tab = name;
    history.replaceState(null, "", `#/run/${encodeURIComponent(this.key)}?tab=${encodeURIComponent(name)}`);
    patch(this.tabs, Object.keys(TABS).map((one) => h("button", { type: "button", role: "tab", "aria-selected": String(one === name), onclick: () => this.show(one) }, one)));
    this.tab?.close?.();
    fill(this.body);
    this.tab = new TABS[name](this, this.body);
  }

  update(news) {
    if (this.closed) return;
    if (news.gone) {
      this.isGone = true;
      return this.drawHead();
    }
    this.isGone = false;
    this.measure(news.status);
    Object.assign(this, { status: news.status, groups: news.groups });
    Object.assign(this.detail, { live: news.live, note: news.note });
    this.detail.events.splice(Math.max(0, news.events_begin - this.detail.events_begin));
    this.detail.events.push(...news.events);
    this.drawHead();
    this.tab.update?.();
    if (news.stamp !== this.detail.stamp) this.reload();
  }

  /** Load again what the events of the server do not contain: checkpoints, videos, logs and names of metrics. */
  async reload() {
    if (this.reloading) return;
    this.reloading = true;
    try {
      const { status, groups, ...detail } = await get("run", { key: this.key });
      if (this.closed) return;
      this.detail = detail;
      this.drawHead();
      this.tab.update?.();
    } catch {
      // The next event of the server tries again.
    } finally {
      this.reloading = false;
    }
  }

  /** Compute the flow of each stream between two states of the run. */
  measure({ elapsed, streams }) {
    const passed = this.before ? elapsed - this.before.elapsed : Infinity;
    if (passed > 0 && passed < 0.5) return;
    for (const stream of streams) {
      const earlier = this.before?.consumed.get(stream.name);
      if (earlier !== undefined && passed > 0) this.rates.set(stream.name, Math.max(0, (stream.consumed - earlier) / passed));
    }
    this.before = { elapsed, consumed: new Map(streams.map((one) => [one.name, one.consumed])) };
  }

  drawHead() {
    const s = this.status;
    document.title = `${s.run} · SRL`;
    const share = s.target_steps ? Math.min(1, s.steps / s.target_steps) : null;
    const left = s.state === "running" && s.train_fps > 0 && s.target_steps > s.steps ? (s.target_steps - s.steps) / s.train_fps : null;
    const problems = [...(this.detail.note ? [`This run does not answer: ${this.detail.note}. Its last figures are shown.`] : []), ...this.detail.problems];
    patch(this.head,
      this.isGone ? h("div.card.error", { role: "alert" }, h("b", {}, "This run's directory is gone."), " Its last figures stay below. ", h("a", { href: "#/" }, "All runs")) : null,
      h("div.row", {}, h("h1.grow", {}, s.run, " ", stateBadge(s.state)), this.actions()),
      h("div.dim", {}, [s.environment, s.algorithm, s.path].filter(Boolean).join(" · ")),
      share === null ? null : h("div.progress", { role: "progressbar", "aria-valuenow": Math.round(100 * share), "aria-label": "Steps" }, h("i", { style: { width: `${100 * share}%` } })),
      h("div.figures.card", {}, this.figures(left).map(([label, value]) => h("div", {}, h("b", {}, value), h("span", {}, label)))),
      problems.length ? h("div.card.error", { role: "alert" }, problems.map((text) => h("div", {}, text))) : null,
      s.reason && !LIVE.has(s.state) ? h(`div.card${s.state === "failed" ? ".error" : ""}`, {}, h("pre", {}, s.reason)) : null,
      s.bottleneck && s.state === "running" ? h("div.card.advice", {}, h("b", {}, s.bottleneck), s.advice ? h("div", {}, "To change it: ", h("code", {}, s.advice)) : null) : null);
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
    const button = (name, text, act, enabled = live, why = "only for a run that is active", style = "") =>
      h(`button${style}`, { type: "button", disabled: !enabled, "data-action": name, title: enabled ? null : why, onclick: act }, text);
    return [
      button("save", "Save checkpoint", () => this.ask("Write a checkpoint now?", { action: "save" })),
      button("evaluate", "Evaluate", () => this.ask("Evaluate the newest version now?", { action: "evaluate" })),
      button("scale", "Scale …", () => this.askScale()),
      button("record", "Record video", () => this.ask("Record a video of the newest checkpoint? This takes a while and uses a core.", { action: "record" }), this.detail.checkpoints.length > 0, "there is no checkpoint yet"),
      button("stop", "Stop …", () => this.ask("Stop this run after a last checkpoint? `srl resume` continues it.", { action: "stop" }), live, "only for a run that is active", ".danger"),
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
        setTimeout(() => { if (answer.isConnected) dialog.close(); }, 1200);
      } catch (error) {
        fill(answer, h("span.bad", {}, error.message));
        confirm.disabled = false;
      }
    };
    const confirm = h("button.primary", { type: "button", onclick: send, "data-action": "confirm" }, "Yes");
    fill(dialog, h("p", {}, h("b", {}, this.status.run)), h("p", {}, question), more, answer, h("div.row", {}, confirm, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));
    dialog.showModal();
  }

  askScale() {
    const group = h("select", { "aria-label": "Group of workers", onchange: () => { number.value = this.groups.find((one) => one.name === group.value).count; } },
      this.groups.map((one) => h("option", { value: one.name }, `${one.name} (${one.count})`)));
    const number = h("input", { type: "number", min: 1, value: this.groups[0]?.count ?? 1, "aria-label": "Number of workers" });
    this.ask("Change the number of workers of a group.", () => ({ action: "scale", group: group.value, count: Number(number.value) }), h("p.row", {}, group, number));
  }
}
