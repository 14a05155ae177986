/** Figures as people read them. A figure and its unit stay on one line. */

export function bytes(n: number | null | undefined): string {
  if (n === null || n === undefined) return "unknown";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return `${n < 10 && unit > 0 ? n.toFixed(1) : Math.round(n)}\u00a0${units[unit]}`;
}

export function span(seconds: number): string {
  if (seconds < 90) return `${Math.round(seconds)}\u00a0s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)}\u00a0min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)}\u00a0h`;
  return `${Math.round(seconds / 86400)}\u00a0d`;
}

export function figure(n: number | null | undefined, digits = 1): string {
  if (n === null || n === undefined || !Number.isFinite(n)) return "–";
  if (Math.abs(n) >= 1000) return Math.round(n).toLocaleString("en");
  return n.toFixed(digits);
}

export function latency(us: number): string {
  if (us <= 0) return "–";
  return us < 1000 ? `${Math.round(us)}\u00a0µs` : `${(us / 1000).toFixed(us < 10000 ? 1 : 0)}\u00a0ms`;
}

/** A name that the daemon takes, made from any text. */
export function plain(text: string): string {
  const last = text.split("/").filter(Boolean).pop() ?? "";
  return last.replace(/[^A-Za-z0-9._-]/g, "-").slice(0, 63) || "device";
}

export function count(n: number, thing: string): string {
  return `${n} ${thing}${n === 1 ? "" : "s"}`;
}

/** Text as a sentence. */
export function sentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}
