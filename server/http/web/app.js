// The page: which view the address asks for, asking the API every two seconds, the token.
import {bar, el, fill, pill, tile} from "./dom.js";
import {ENDED, JobView, stateOf} from "./job_view.js";
import {ago, bytes, count, digits, idOf, number, percent, seconds, shortEnum, titleOf, words} from "./text.js";

const PAUSE_MS = 2000;
const PAUSE_AFTER_TROUBLE_MS = 5000;
const TOKEN = "penstock-token";
const THEME = "penstock-theme";

const $ = (id) => document.getElementById(id);

// ---- The API ----

class NeedsToken extends Error {}

async function get(path) {
  const token = sessionStorage.getItem(TOKEN);
  const reply = await fetch(path, {headers: token ? {Authorization: `Bearer ${token}`} : {}, redirect: "error"});
  const body = await reply.json();
  if (reply.status === 401) throw new NeedsToken(body.message);
  if (!reply.ok) throw new Error(body.message ?? `HTTP ${reply.status}`);
  return body;
}

function askForToken(error) {
  const refused = sessionStorage.getItem(TOKEN) !== null;
  sessionStorage.removeItem(TOKEN);
  $("token-error").textContent = refused ? error.message : "";
  if (!$("token-dialog").open) $("token-dialog").showModal();
}

$("token-form").addEventListener("submit", () => {
  sessionStorage.setItem(TOKEN, $("token").value.trim());
  $("token").value = "";
  refreshSoon(0);
});
$("sign-out").addEventListener("click", () => {
  sessionStorage.removeItem(TOKEN);
  refreshSoon(0);
});

// ---- Queue ----

class QueueView {
  constructor(root) {
    this.tiles = el("div");
    this.devices = el("div", {class: "devices"});
    this.jobs = el("div");
    root.replaceChildren(this.tiles, el("section", {class: "card"}, el("h2", {}, "Devices"), this.devices),
      el("section", {class: "card"}, el("h2", {}, "Jobs"), this.jobs));
  }
  destroy() {}

  async update() {
    const [server, devices, jobs] = await Promise.all([get("/api/server"), get("/api/devices"), get("/api/jobs?page_size=100")]);
    this.showServer(server);
    this.showDevices(devices.devices ?? []);
    this.showJobs(jobs.jobs ?? [], jobs.nextPageToken);
    return false;
  }

  showServer(server) {
    const total = number(server.hostMemoryBytes);
    const reserved = number(server.hostMemoryReservedBytes);
    const memory = tile("Host memory reserved", bytes(reserved), `of ${bytes(total)}`);
    memory.append(bar(total ? reserved / total : 0, `${percent(total ? reserved / total : 0)} reserved`));
    const draining = server.status === "SERVER_STATUS_DRAINING";
    fill(this.tiles, el("div", {class: "tiles"}, tile("Running", count(server.runningJobs)),
      tile("Queued", count(server.queuedJobs), draining ? "draining: nothing starts" : null), memory));
    $("status").textContent = `${server.version}${draining ? ", draining" : ""}`;
  }

  showDevices(list) {
    fill(this.devices, list.map((device) => {
      const reading = device.reading ?? {};
      const parts = [reading.utilization !== undefined ? `${percent(reading.utilization)} busy` : null,
        reading.memoryUsedBytes !== undefined ? `${bytes(reading.memoryUsedBytes)} of ${bytes(device.memoryBytes)}` : bytes(device.memoryBytes),
        reading.powerWatts !== undefined ? `${Math.round(reading.powerWatts)} W` : null,
        reading.temperatureCelsius !== undefined ? `${Math.round(reading.temperatureCelsius)} °C` : null];
      const health = shortEnum(device.health, "DEVICE_HEALTH_");
      return el("div", {class: "device"}, el("strong", {}, device.description || device.id), pill(health),
        el("span", {class: "soft"}, parts.filter(Boolean).join(" · ")),
        device.job ? el("a", {href: `#/${device.job}`}, idOf(device.job)) : el("span", {class: "soft"}, "free"),
        device.healthMessage ? el("span", {class: "why"}, device.healthMessage) : null);
    }));
  }

  showJobs(jobs, more) {
    if (!jobs.length) {
      return fill(this.jobs, el("p", {class: "soft"}, "No jobs. ", el("code", {}, "penstock submit job.yaml"), " makes one."));
    }
    const columns = ["Job", "State", "Progress", "Loss", "Tokens/s", "To go", "Created"];
    fill(this.jobs, el("table", {class: "jobs"},
      el("thead", {}, el("tr", {}, columns.map((name) => el("th", {class: ["Loss", "Tokens/s", "To go"].includes(name) ? "number" : null}, name)))),
      el("tbody", {}, jobs.map((job) => this.row(job)))),
    more ? el("p", {class: "soft"}, "These are the newest 100; penstock jobs lists all.") : null);
  }

  row(job) {
    const state = stateOf(job);
    const progress = job.progress ?? {};
    const total = number(progress.totalSteps);
    const reason = words(shortEnum(job.stateReason, "STATE_REASON_"));
    const place = number(job.queuePosition) ? `${job.queuePosition}. in the queue` : null;
    const why = job.error?.message ?? [place, job.stateMessage || reason].filter(Boolean).join(": ");
    const live = !ENDED.has(state) && state !== "QUEUED";
    return el("tr", {},
      el("td", {class: "wide"}, el("a", {class: "job-name", href: `#/${job.name}`}, titleOf(job)),
        job.train?.displayName ? el("div", {class: "soft mono"}, idOf(job.name)) : null),
      el("td", {class: "wide"}, pill(state), why ? el("div", {class: "why"}, why) : null),
      el("td", {class: "wide"}, total ? [el("div", {class: "soft"}, `${count(progress.step)} / ${count(total)}`),
        bar(number(progress.step) / total, "progress")] : null),
      el("td", {class: "number", "data-name": "loss"}, progress.loss === undefined ? null : digits(progress.loss)),
      el("td", {class: "number", "data-name": "tokens/s"}, live && progress.tokensPerSecond ? digits(progress.tokensPerSecond, 3) : null),
      el("td", {class: "number", "data-name": "to go"}, live && progress.remainingSeconds ? seconds(progress.remainingSeconds) : null),
      el("td", {class: "soft", "data-name": "created"}, ago(job.createTime)));
  }
}

// ---- Which view, and its next look ----

let view = null;
let timer = 0;
let shownAddress = null;

function viewOf(address) {
  const id = address.match(/^#\/jobs\/([a-z0-9-]+)$/)?.[1];
  return id ? new JobView($("view"), id, get) : new QueueView($("view"));
}

async function refresh() {
  if (shownAddress !== location.hash) {
    view?.destroy();
    shownAddress = location.hash;
    view = viewOf(location.hash);
  }
  const looked = view;
  let pause = PAUSE_MS;
  try {
    if (await looked.update()) pause = PAUSE_AFTER_TROUBLE_MS;
    $("trouble").hidden = true;
    $("sign-out").hidden = sessionStorage.getItem(TOKEN) === null;
  } catch (error) {
    pause = PAUSE_AFTER_TROUBLE_MS;
    if (error instanceof NeedsToken) {
      askForToken(error);
    } else {
      $("trouble").textContent = error instanceof TypeError ? "The daemon does not answer; trying again." : error.message;
      $("trouble").hidden = false;
    }
  }
  document.documentElement.dataset.ready = "yes";
  if (looked === view) refreshSoon(pause);
}

function refreshSoon(pause) {
  clearTimeout(timer);
  // A page that nobody sees asks for nothing.
  timer = setTimeout(() => (document.hidden ? refreshSoon(PAUSE_MS) : refresh()), pause);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  shownAddress = null;  // the charts have their colours from it
}

setTheme(localStorage.getItem(THEME) ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
$("theme").addEventListener("click", () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem(THEME, next);
  setTheme(next);
  refreshSoon(0);
});
window.addEventListener("hashchange", () => refreshSoon(0));
refresh();
