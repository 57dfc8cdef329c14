// The page of one job: its state now, curves, what the last step's lanes did, plan, checkpoints, log.
import {LineChart} from "./charts.js";
import {bar, el, facts, fill, pill, tile} from "./dom.js";
import {ago, bytes, count, digits, idOf, number, percent, seconds, shortEnum, titleOf, words} from "./text.js";

const MAX_POINTS = 400;
const MAX_LOG_LINES = 400;
const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);

const stateOf = (job) => shortEnum(job.state, "JOB_STATE_");
const card = (title, ...children) => el("section", {class: "card"}, title ? el("h2", {}, title) : null, ...children);

export class JobView {
  // `get(path)` fetches JSON of the API.
  constructor(root, id, get) {
    this.id = id;
    this.get = get;
    this.base = `/api/jobs/${encodeURIComponent(id)}`;
    this.points = [];
    this.attempt = 0;
    this.log = {attempt: 0, nextOffset: undefined, lines: []};
    this.parts = Object.fromEntries(["head", "tiles", "lanes", "plan", "checkpoints", "warnings", "log"]
      .map((name) => [name, el(name === "log" ? "pre" : "div", {class: name === "log" ? "log" : null})]));
    const canvases = ["Loss", "Throughput", "Step time", "Memory"].map((title) => {
      const canvas = el("canvas", {role: "img", "aria-label": `${title} by step`});
      return [card(title, el("div", {class: "chart"}, canvas)), canvas];
    });
    this.samples = el("div");
    const button = el("button", {type: "button"}, "Show examples");
    button.addEventListener("click", () => this.showData(button));
    this.spec = el("pre", {class: "json"});
    root.replaceChildren(
      el("div", {class: "card"}, this.parts.head, this.parts.warnings), this.parts.tiles,
      el("div", {class: "grid"}, canvases.map(([node]) => node)),
      el("div", {class: "grid"}, card("Lanes of the last step", this.parts.lanes), card("Plan", this.parts.plan)),
      card("Checkpoints", this.parts.checkpoints),
      card("Log", this.parts.log),
      card("Data", el("p", {class: "soft"},
        "What the model is trained on, as the job reads it. Coloured text is learned. Takes as long as reading the data."),
        button, this.samples),
      el("details", {class: "card"}, el("summary", {}, "Spec"), this.spec));
    const [loss, throughput, time, memory] = canvases.map(([, canvas]) => canvas);
    this.charts = [
      new LineChart(loss, [{label: "training", color: "--c1"}, {label: "validation", color: "--c2", marks: true}], {format: digits}),
      new LineChart(throughput, [{label: "tokens/s", color: "--c3"}], {format: digits, fromZero: true}),
      new LineChart(time, [{label: "measured", color: "--c1"}, {label: "predicted", color: "--c2", dashed: true}], {format: seconds, fromZero: true}),
      new LineChart(memory, [{label: "host peak", color: "--c1"}, {label: "planned", color: "--c2", dashed: true},
        {label: "device", color: "--c4"}], {format: bytes, fromZero: true, binary: true}),
    ];
  }

  destroy() {
    this.gone = true;
    this.charts.forEach((chart) => chart.destroy());
  }

  async update() {
    const {job} = await this.get(this.base);
    const [checkpoints] = await Promise.all([this.get(`${this.base}/checkpoints`), this.readMetrics(job), this.readLog(job)]);
    if (this.gone) return true;
    this.showHead(job);
    this.showTiles(job);
    this.showLanes();
    this.showPlan(job);
    this.showCheckpoints(checkpoints.checkpoints ?? []);
    this.drawCharts();
    this.spec.textContent = JSON.stringify(job.train ?? job.export, null, 2);
    return ENDED.has(stateOf(job));
  }

  // From the step after the last one known; all of them again when another attempt may have gone back, or
  // when they have become many.
  async readMetrics(job) {
    const attempt = number(job.attempt);
    if (attempt !== this.attempt || this.points.length > 3 * MAX_POINTS) this.points = [];
    this.attempt = attempt;
    const last = this.points.at(-1);
    const first = last ? number(last.step) + 1 : 0;
    const reply = await this.get(`${this.base}/metrics?max_points=${MAX_POINTS}&first_step=${first}`);
    this.points.push(...(reply.points ?? []));
  }

  async readLog(job) {
    const attempt = Math.max(1, number(job.attempt));
    if (this.log.attempt !== attempt) this.log = {attempt, nextOffset: undefined, lines: []};
    const from = this.log.nextOffset === undefined ? "" : `&offset=${this.log.nextOffset}`;
    const reply = await this.get(`${this.base}/log?attempt=${attempt}${from}`);
    this.log.nextOffset = reply.nextOffset;
    this.log.lines = this.log.lines.concat(reply.lines).slice(-MAX_LOG_LINES);
    const node = this.parts.log;
    const atEnd = node.scrollTop + node.clientHeight >= node.scrollHeight - 8;
    const text = this.log.lines.join("\n") || "No worker has written anything yet.";
    if (node.textContent !== text) {
      node.textContent = text;
      if (atEnd) node.scrollTop = node.scrollHeight;
    }
  }

  showHead(job) {
    const progress = job.progress ?? {};
    const total = number(progress.totalSteps);
    const step = number(progress.step);
    const phase = shortEnum(progress.phase, "JOB_PHASE_").toLowerCase();
    const reason = words(shortEnum(job.stateReason, "STATE_REASON_"));
    const training = phase === "train" || phase === "";
    const share = training ? (total ? step / total : 0) : number(progress.phaseFraction);
    const ended = ENDED.has(stateOf(job));
    fill(this.parts.head,
      el("div", {class: "head"}, el("h1", {}, titleOf(job)), pill(stateOf(job)),
        reason ? el("span", {class: "soft"}, reason) : null),
      el("div", {class: "soft"}, el("a", {href: "#/"}, "All jobs"), " / ", el("span", {class: "mono"}, idOf(job.name))),
      job.stateMessage ? el("p", {class: "message"}, job.stateMessage) : null,
      job.error ? el("p", {class: "message bad"}, job.error.message) : null,
      total || !training ? el("div", {}, el("p", {class: "message soft"},
        training || ended ? `step ${count(step)} of ${count(total)}` : `${phase} ${percent(share)}`,
        progress.remainingSeconds && !ended ? `, about ${seconds(progress.remainingSeconds)} to go` : ""),
      bar(ended ? (total ? step / total : 0) : share, "progress")) : null);
    fill(this.parts.warnings, (job.warnings ?? []).length
      ? el("ul", {class: "warnings"}, job.warnings.map((text) => el("li", {}, text))) : null);
  }

  showTiles(job) {
    const steps = this.points.filter((point) => !point.evaluation);
    const last = steps.at(-1) ?? {};
    const evaluation = this.points.filter((point) => point.evaluation).at(-1)?.evaluation;
    const reading = job.progress?.deviceReading ?? {};
    const device = [reading.utilization !== undefined ? `${percent(reading.utilization)} busy` : null,
      reading.powerWatts !== undefined ? `${Math.round(reading.powerWatts)} W` : null,
      reading.temperatureCelsius !== undefined ? `${Math.round(reading.temperatureCelsius)} °C` : null];
    fill(this.parts.tiles, el("div", {class: "tiles"},
      tile("Loss", digits(last.loss), last.lossZScore > 6 ? "a spike" : `gradient norm ${digits(last.gradNorm)}`),
      evaluation ? tile("Validation loss", digits(evaluation.loss), `perplexity ${digits(evaluation.perplexity)}`) : null,
      tile("Tokens/s", digits(last.tokensPerSecond, 3), `${count(job.progress?.realTokens)} tokens so far`),
      tile("Step", last.stepSeconds === undefined ? "–" : seconds(last.stepSeconds),
        last.predictedStepSeconds ? `predicted ${seconds(last.predictedStepSeconds)}` : null),
      tile("Learning rate", digits(last.learningRate)),
      tile("Attempt", count(job.attempt), number(job.preemptions) ? `${job.preemptions} preemptions` : `created ${ago(job.createTime)}`),
      job.device ? tile("Device", job.device === "cpu" ? "CPU" : device.filter(Boolean).join(", ") || "GPU",
        job.device === "cpu" ? null : job.device) : null));
  }

  showLanes() {
    const last = this.points.filter((point) => !point.evaluation).at(-1);
    const lanes = Object.entries(last?.laneBusySeconds ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
    const whole = number(last?.stepSeconds);
    if (!lanes.length || !whole) return fill(this.parts.lanes, el("p", {class: "soft"}, "No step has ended yet."));
    const compute = number(last.laneBusySeconds.compute);
    fill(this.parts.lanes,
      el("div", {class: "lanes"}, lanes.flatMap(([name, busy]) => [el("span", {}, name),
        bar(busy / whole, `${name} busy ${percent(busy / whole)}`),
        el("span", {class: "number"}, `${percent(busy / whole)} · ${seconds(busy)}`)])),
      el("p", {class: "message soft"}, `Step ${count(last.step)} took ${seconds(whole)}. `
        + `The compute lane waited for ${seconds(Math.max(0, whole - compute))} of it`
        + (number(last.checkpointWaitSeconds) ? `, ${seconds(last.checkpointWaitSeconds)} for a checkpoint.` : ".")));
  }

  showPlan(job) {
    const plan = job.plan ?? {};
    const classes = (list) => (list ?? []).map(({name, bytes: size}) =>
      el("tr", {}, el("td", {}, name), el("td", {class: "number"}, bytes(size))));
    const estimate = plan.estimate;
    fill(this.parts.plan,
      facts([["Runs as", plan.policy], ["Waits for", plan.bottleneck],
        ["Parameters", plan.parameters ? count(plan.parameters) : null],
        ["Host memory", plan.hostPeakBytes ? bytes(plan.hostPeakBytes) : null],
        ["Device memory", number(plan.deviceBytes) ? bytes(plan.deviceBytes) : null],
        ["Whole run", estimate ? `${seconds(estimate.seconds)}, ${digits(number(estimate.energyJoules) / 3.6e6)} kWh` : null],
        ["Rates from", plan.machineProfile]]),
      (plan.classes ?? []).length ? el("details", {}, el("summary", {}, "Memory by class"), el("table", {},
        el("tbody", {}, classes(plan.classes), classes(plan.deviceClasses)))) : null);
  }

  showCheckpoints(list) {
    if (!list.length) return fill(this.parts.checkpoints, el("p", {class: "soft"}, "None yet."));
    const rows = [...list].reverse().map((one) => el("tr", {},
      el("td", {}, count(one.step), " ", one.pinned ? el("span", {class: "pill"}, "pinned") : null),
      el("td", {class: "number"}, bytes(one.bytes)), el("td", {class: "number"}, digits(one.loss)),
      el("td", {class: "number"}, digits(one.validationLoss)),
      el("td", {class: "number"}, one.writeSeconds ? seconds(one.writeSeconds) : "–"),
      el("td", {}, ago(one.createTime))));
    fill(this.parts.checkpoints, el("div", {class: "scroll"}, el("table", {},
      el("thead", {}, el("tr", {}, ["Step", "Size", "Loss", "Validation", "Written in", "Saved"].map((name, i) =>
        el("th", {class: i >= 1 && i <= 4 ? "number" : null}, name)))),
      el("tbody", {}, rows))));
  }

  drawCharts() {
    const steps = this.points.filter((point) => !point.evaluation);
    const curve = (points, value) => points.map((point) => ({x: number(point.step), y: value(point)}));
    const known = (value) => (number(value) > 0 ? Number(value) : NaN);
    const [loss, throughput, time, memory] = this.charts;
    loss.draw([curve(steps, (p) => number(p.loss)),
      curve(this.points.filter((p) => p.evaluation), (p) => number(p.evaluation.loss))]);
    throughput.draw([curve(steps, (p) => number(p.tokensPerSecond))]);
    time.draw([curve(steps, (p) => number(p.stepSeconds)), curve(steps, (p) => known(p.predictedStepSeconds))]);
    memory.draw([curve(steps, (p) => known(p.hostPeakBytes)), curve(steps, (p) => known(p.plannedHostPeakBytes)),
      curve(steps, (p) => known(p.deviceReading?.memoryUsedBytes))]);
  }

  async showData(button) {
    button.disabled = true;
    this.samples.replaceChildren(el("p", {class: "soft"}, "Reading the data …"));
    try {
      const data = await this.get(`${this.base}/data?examples=5`);
      this.samples.replaceChildren(
        el("p", {class: "soft"}, `${count(data.documents)} documents, ${count(data.tokens)} tokens, `
          + `${count(data.learnedTokens)} of them learned; ${count(data.stepsPerEpoch)} steps an epoch.`),
        ...(data.examples ?? []).map((example) => el("div", {class: "sample"},
          el("div", {class: "soft"}, `${example.location} · ${count(example.tokens)} tokens, ${count(example.learnedTokens)} learned`),
          (example.segments ?? []).map((part) => el("span", {class: part.learned ? "learned" : null}, part.text)))));
    } catch (error) {
      this.samples.replaceChildren(el("p", {class: "bad"}, error.message));
    }
    button.disabled = false;
  }
}

export {ENDED, stateOf};
