// Elements from data. Text only ever becomes text: nothing here takes markup, so a job may be called
// "<script>" without harm.

// el("a", {class: "x", href: "#/"}, "text", child, null): null and undefined children are left out.
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) node.setAttribute(key, value);
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null) node.append(child);
  }
  return node;
}

// Replaces the children only if they differ, so that a selection or a scroll position stays.
export function fill(node, ...children) {
  const next = el("div", {}, ...children);
  if (node.innerHTML === next.innerHTML) return;
  node.replaceChildren(...next.childNodes);
}

export function bar(share, label) {
  const part = el("span");
  part.style.width = `${Math.min(100, Math.max(0, 100 * share))}%`;
  return el("div", {class: "bar", role: "img", "aria-label": label}, part);
}

export function tile(name, value, more) {
  return el("div", {class: "tile"}, el("div", {class: "name"}, name), el("div", {class: "value"}, value),
    more ? el("div", {class: "more"}, more) : null);
}

export const facts = (rows) => el("dl", {class: "facts"}, rows.filter((row) => row[1])
  .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

const KIND = {RUNNING: "live", STARTING: "live", SUCCEEDED: "good", FAILED: "bad", QUEUED: "warn",
  PAUSED: "warn", PAUSING: "warn", YIELDING: "warn", CANCELLING: "warn", HEALTHY: "good",
  QUARANTINED: "bad", UNUSABLE: "bad"};
export const pill = (state) => el("span", {class: `pill ${KIND[state] ?? ""}`}, state);
