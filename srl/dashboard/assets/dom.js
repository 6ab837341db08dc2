// Builds elements and formats numbers. Text is always set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "rect", "circle", "text", "tspan", "title", "defs", "marker", "polyline"]);

/** Return a new element: h("a.link", {href: "#"}, "text", child). Attributes that start with "on" are listeners;
 * `data-key` names an element among its siblings for `patch`. */
export function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = SVG_TAGS.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) { element[key] = value; (element.listeners ??= []).push(key); }
    else if (key === "style") Object.assign(element.style, value);
    else if (key in element && typeof value === "boolean") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replace the children of an element, keeping its place on the page. */
export function fill(element, ...children) {
  const parts = document.createDocumentFragment();
  append(parts, children);
  element.replaceChildren(parts);
  return element;
}

/**
 * Make the children of an element like these, changing as little as possible: an element that stays keeps its focus, its
 * scroll position and what was typed into it. Elements with the property `opaque` (charts) change themselves.
 */
export function patch(element, ...children) {
  const wanted = document.createDocumentFragment();
  append(wanted, children);
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  match(element, [...wanted.childNodes]);
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  return element;
}

/** Make these elements the children, without touching those that are in place. */
export function arrange(element, children) {
  if (children.length !== element.children.length || children.some((one, i) => one !== element.children[i])) element.replaceChildren(...children);
}

function isSame(old, node) {
  return old.nodeType === node.nodeType && old.nodeName === node.nodeName && old.dataset?.key === node.dataset?.key;
}

function match(element, wanted) {
  const keyed = new Map([...element.childNodes].filter((node) => node.dataset?.key !== undefined).map((node) => [node.dataset.key, node]));
  const kept = new Set(wanted.map((node) => node.dataset?.key));
  for (const [key, node] of keyed) if (!kept.has(key)) node.remove();
  let at = element.firstChild;
  for (const node of wanted) {
    let old = at;
    if (!old || !isSame(old, node)) {
      const moved = node.dataset?.key === undefined ? null : keyed.get(node.dataset.key);
      old = moved && isSame(moved, node) ? element.insertBefore(moved, at) : null;
    } else at = at.nextSibling;
    if (!old) element.insertBefore(node, at);
    else if (old !== node) become(old, node);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function become(old, node) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== node.data) old.data = node.data;
    return;
  }
  if (old.opaque) return;
  for (const name of old.getAttributeNames()) if (!node.hasAttribute(name)) old.removeAttribute(name);
  for (const name of node.getAttributeNames()) if (name !== "style" && old.getAttribute(name) !== node.getAttribute(name)) old.setAttribute(name, node.getAttribute(name));
  if (old.style.cssText !== node.style.cssText) old.style.cssText = node.style.cssText; // the policy of the page forbids the attribute
  for (const name of old.listeners ?? []) old[name] = null;
  for (const name of node.listeners ?? []) old[name] = node[name];
  old.listeners = node.listeners;
  for (const name of ["disabled", "checked", "selected"]) if (name in node && old[name] !== node[name]) old[name] = node[name];
  match(old, [...node.childNodes]);
}

export function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e7)) return value.toExponential(2);
  return value.toLocaleString("en-US", { maximumFractionDigits: size >= 1000 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 4 });
}

export function count(value) {
  return value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-US");
}

/** Short form for tables: 1,234 -> 1.2k. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= limit) return `${(value / limit).toPrecision(3)}${unit}`;
  return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toPrecision(3);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function percent(share) {
  return `${Math.round(100 * share)} %`;
}

export function bytes(value) {
  return value >= 1e9 ? `${(value / 1e9).toFixed(2)} GB` : value >= 1e6 ? `${(value / 1e6).toFixed(1)} MB` : `${Math.round(value / 1e3)} kB`;
}

export function ago(seconds) {
  if (!seconds) return "–";
  const age = Date.now() / 1000 - seconds;
  return age < 5 ? "now" : `${duration(age)} ago`;
}

/** A small curve without axes. */
export function sparkline(values) {
  const known = (values ?? []).filter((value) => Number.isFinite(value));
  if (known.length < 2) return h("span.dim", {}, "–");
  const low = Math.min(...known), span = Math.max(...known) - low || 1;
  const points = known.map((v, i) => `${((110 * i) / (known.length - 1)).toFixed(1)},${(22 - (20 * (v - low)) / span).toFixed(1)}`);
  return h("svg.spark", { viewBox: "0 0 110 24", "aria-hidden": "true" }, h("path", { d: `M${points.join("L")}` }));
}

export const PHASES = ["env", "inference", "update", "publish", "other", "waiting"];
export const PHASE_NAMES = { env: "environment", inference: "inference", update: "update", publish: "publishing", other: "other work", waiting: "waiting" };

export function busyBar(busy) {
  const text = PHASES.filter((phase) => busy[phase] > 0.005).map((phase) => `${PHASE_NAMES[phase]} ${percent(busy[phase])}`).join(", ");
  return h("div.bar", { role: "img", "aria-label": text || "no work yet", title: text },
    PHASES.map((phase) => (busy[phase] ? h(`i.${phase}`, { style: { width: `${100 * busy[phase]}%` } }) : null)));
}

export function legend() {
  return h("div.legend", {}, PHASES.map((phase) => h("span", {}, h(`i.${phase}`), PHASE_NAMES[phase])));
}

export function stateBadge(state) {
  return h(`span.state.${state}`, {}, state);
}
