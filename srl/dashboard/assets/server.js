// Requests to the server that sent this page, and the stream of its events.

export class RequestError extends Error {}

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { "X-SRL": "1", ...(options.headers ?? {}) } });
  } catch {
    throw new RequestError("the dashboard's server does not answer; is `srl dashboard` still running?");
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new RequestError(body.error ?? `the server answered ${response.status}`);
  return body;
}

export function get(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    for (const one of Array.isArray(value) ? value : [value]) if (one !== "" && one !== null && one !== undefined) query.append(name, one);
  const text = query.toString();
  return request(`api/${path}${text ? `?${text}` : ""}`);
}

export function post(path, body) {
  return request(`api/${path}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

const QUIET_SECONDS = 6;

/** Return why the server sends no events, if it says so: after a restart it may have another token. */
async function refusal() {
  const answer = await fetch("./", { method: "HEAD" }).catch(() => null);
  return answer?.status === 403 ? "the server has another token now: open the address that it printed" : "";
}

/** Events of the server: `runs` with changed rows of the table and, while a run is shown, `run` with its newest state. */
export class Events {
  constructor(onConnection) {
    this.handlers = { runs: () => {}, run: () => {} };
    this.onConnection = onConnection;
    this.key = "";
    this.heard = 0;
    setInterval(() => this.check(), 1000);
  }

  /** `after` returns the number of the last event that the page knows. */
  open(key, handlers, after = () => 0) {
    this.handlers = { runs: () => {}, run: () => {}, ...handlers };
    this.key = key;
    this.after = after;
    this.connect();
  }

  connect() {
    this.source?.close();
    const source = new EventSource(`api/events?key=${encodeURIComponent(this.key)}&after=${this.after()}`);
    this.source = source;
    this.heard = performance.now();
    for (const name of ["runs", "run", "beat"])
      source.addEventListener(name, (event) => {
        this.heard = performance.now();
        this.onConnection(true);
        if (name !== "beat") this.handlers[name](JSON.parse(event.data), Number(event.lastEventId));
      });
    source.onerror = async () => {
      this.onConnection(false, this.reason);
      this.reason = await refusal();
      if (source === this.source && source.readyState !== EventSource.OPEN) this.onConnection(false, this.reason);
    };
  }

  /** EventSource connects again after most errors; not after a refusal, and it does not notice a frozen server. */
  check() {
    if (!this.source || performance.now() - this.heard < 1000 * QUIET_SECONDS) return;
    this.onConnection(false, this.reason);
    this.connect();
  }
}
