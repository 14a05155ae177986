/** The daemon's state as it arrives once a second, and its last ten minutes. */

import { signal } from "@preact/signals";
import type { Problem, Status } from "./model";

export const status = signal<Status | null>(null);
export const away = signal<Problem | null>(null);

/** What the charts show, oldest first; nothing where it is not known. */
export interface Series {
  at: number[];
  requests: (number | null)[];
  hits: (number | null)[];
  cached: (number | null)[];
  uncached: (number | null)[];
}

const SAMPLES_MAX = 600;

export const series = signal<Series>({ at: [], requests: [], hits: [], cached: [], uncached: [] });

interface Totals {
  requests: number;
  hit: number;
  missed: number;
}

function totals(now: Status): Totals {
  const sum = (name: string) => now.pools.reduce((all, pool) => all + (pool.counters[name] ?? 0), 0);
  return { requests: now.nbd.requests, hit: sum("blocks_hit"), missed: sum("blocks_missed") };
}

/** The mean latency of reads of devices of one role, weighted by how many they had; in milliseconds. */
function latency(now: Status, role: string): number | null {
  const devices = now.devices.filter((device) => device.role === role && device.read.iops > 0);
  const reads = devices.reduce((all, device) => all + device.read.iops, 0);
  const time = devices.reduce((all, device) => all + device.read.iops * device.read.latency_us_mean, 0);
  return reads > 0 ? time / reads / 1000 : null;
}

let before: Totals | null = null;
let origin: number | null = null;

function take(now: Status): void {
  const total = totals(now);
  const last = before;
  before = total;
  status.value = now;
  away.value = null;
  if (!last || total.requests < last.requests) return;
  const span = Math.max(now.span_s, 0.001);
  const hit = total.hit - last.hit;
  const all = hit + total.missed - last.missed;
  // While everything hits, the origin is as slow as it was when it was last asked.
  origin = latency(now, "origin") ?? origin;
  const pool = latency(now, "pool");
  const share = all > 0 ? hit / all : null;
  const mixed = share === null ? null : share * (pool ?? 0) + (1 - share) * (origin ?? 0);
  const known = share !== null && (share === 0 || pool !== null) && (share === 1 || origin !== null);
  const old = series.value;
  const add = <T>(list: T[], value: T) => [...list.slice(1 - SAMPLES_MAX), value];
  series.value = {
    at: add(old.at, Date.now() / 1000),
    requests: add(old.requests, (total.requests - last.requests) / span),
    hits: add(old.hits, share === null ? null : share * 100),
    cached: add(old.cached, known ? mixed : null),
    uncached: add(old.uncached, all > 0 ? origin : null),
  };
}

let source: EventSource | null = null;

export function connect(): void {
  if (source) return;
  const own = new EventSource("/api/v1/live");
  source = own;
  own.addEventListener("status", (event) => take(JSON.parse(event.data) as Status));
  own.addEventListener("problem", (event) => (away.value = JSON.parse(event.data) as Problem));
  own.onerror = () => {
    away.value = {
      status: 0,
      title: "No answer",
      detail: "the web server does not answer",
      remedy: "see whether `hotset web` still runs; this page goes on by itself",
    };
    // A refusal ends the source for good; an interruption does not.
    if (own.readyState === EventSource.CLOSED) {
      source = null;
      setTimeout(connect, 3000);
    }
  };
}

export function disconnect(): void {
  source?.close();
  source = null;
}
