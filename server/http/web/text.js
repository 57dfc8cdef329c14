// Numbers and names as people read them. int64 comes as text in JSON, and unset fields not at all.

export const number = (value) => Number(value ?? 0);

export function count(value) {
  return number(value).toLocaleString("en-US", {maximumFractionDigits: 0});
}

export function digits(value, places = 4) {
  const x = Number(value);
  if (value === undefined) return "–";
  if (!Number.isFinite(x)) return String(value);
  if (x !== 0 && (Math.abs(x) >= 1e6 || Math.abs(x) < 1e-3)) return x.toExponential(2);
  return x.toLocaleString("en-US", {maximumSignificantDigits: places});
}

export function bytes(value) {
  let x = number(value);
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (x < 1024 || unit === "TiB") return `${x.toLocaleString("en-US", {maximumSignificantDigits: 3})} ${unit}`;
    x /= 1024;
  }
}

export function seconds(value) {
  const x = Number(value);
  if (!Number.isFinite(x)) return "–";
  if (x < 1) return `${(x * 1000).toPrecision(3)} ms`;
  if (x < 100) return `${x.toPrecision(3)} s`;
  const minutes = Math.round(x / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function ago(time) {
  if (!time) return "–";
  const past = (Date.now() - Date.parse(time)) / 1000;
  if (past < 5) return "just now";
  return `${past < 100 ? `${Math.round(past)} s` : seconds(past)} ago`;
}

export const percent = (share) => `${Math.round(100 * share)}%`;

// "RUNNING" of JOB_STATE_RUNNING, "device busy" of STATE_REASON_DEVICE_BUSY.
export const shortEnum = (value, prefix) => (value ?? "").replace(prefix, "");
export const words = (value) => value.toLowerCase().replaceAll("_", " ");

export const idOf = (name) => name.replace(/^jobs\//, "");
export const titleOf = (job) => job.train?.displayName || idOf(job.name);
