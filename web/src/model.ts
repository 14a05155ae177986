/** What the API reports, as far as the page shows it; docs/openapi.json has all of it. */

export interface WriteBack {
  order: string;
  dirty_bytes: number;
  lag_s: number;
  rate_bytes: number | null;
  devices: string[];
  copies: number;
  /** Why nothing goes to the origin at present. */
  trouble: string | null;
}

/** Requests of clients in the last second. */
export interface Pace {
  iops: number;
  mb_s: number;
  latency_us_p50: number | null;
  latency_us_p99: number | null;
}

export interface Volume {
  name: string;
  origin: string;
  pool: string;
  mode: string;
  /** The mode that it has once it is on again, if it is off. */
  off: string | null;
  quiesced: boolean;
  size_bytes: number;
  hit_percent: number | null;
  read: Pace;
  write: Pace;
  /** By what clients reach it. */
  frontends: string[];
  write_back: WriteBack | null;
  counters: Record<string, number>;
}

export interface PoolDevice {
  name: string;
  controller: string;
  state: string;
  capacity_bytes: number;
  faults: number;
}

export interface Pool {
  name: string;
  policy: string;
  line_bytes: number;
  lines_used: number;
  lines: number;
  devices: PoolDevice[];
  counters: Record<string, number>;
}

export interface Member {
  role: number;
  device: string | null;
  state: string;
  read_errors: number;
  write_errors: number;
  repaired: number;
}

export interface ArrayState {
  name: string;
  level: string;
  state: string;
  size_bytes: number;
  members: Member[];
  spares: string[];
  progress: { role: number | null; percent: number; left_s: number | null } | null;
  scrub: { running: boolean; mismatches: number; repaired: number; unreadable: number; error: string | null } | null;
  lost_bytes: number;
  down: string | null;
  inactive?: string | null;
  warnings: string[];
  events: string[];
}

/** Long work of the daemon. */
export interface Job {
  name: string;
  kind: string;
  state: string;
  percent: number | null;
  left_s: number | null;
  running_s: number;
  /** Whether the daemon would end it before it is done. */
  can_cancel: boolean;
  about: string;
}

export interface Flow {
  iops: number;
  mb_s: number;
  latency_us_mean: number;
  latency_us_p99: number;
}

export interface Device {
  name: string;
  role: string;
  place: string;
  controller: string;
  size_bytes: number;
  read: Flow;
  write: Flow;
  errors: number;
  in_flight: number;
  busy_percent: number;
  /** As it says by itself; null if it does not. */
  wear: { used_percent: number; written_bytes: number } | null;
}

/** Something that is wrong, as the daemon says. */
export interface Trouble {
  kind: string;
  severity: "critical" | "warning";
  subject: string;
  what: string;
  for_s: number;
  cost: string;
  remedy: string;
}

export interface Status {
  /** All is well if there are none. */
  troubles: Trouble[];
  uptime_s: number;
  span_s: number;
  cpu_percent: number;
  resident_bytes: number;
  nbd: { listeners: string[]; connections: number; requests: number; errors: number };
  volumes: Volume[];
  waiting: { name: string; origin: string; pool: string; why: string }[];
  pools: Pool[];
  arrays: ArrayState[];
  jobs: Job[];
  devices: Device[];
}

export interface Place {
  name: string | null;
  place: string;
  size_bytes: number | null;
  model: string | null;
  rotational: boolean | null;
  holds: string | null;
  used_by: string | null;
}

/** The lines that a change writes to the daemon's configuration. */
export interface FileDifference {
  path: string;
  line: number;
  lost: string[];
  new: string[];
}

export interface Explained {
  size_bytes: number;
  mode: string;
  mode_help: string;
  line_bytes: number;
  policy: { name: string; active: string | null; active_for_s: number | null; would_miss: [string, number][] };
  reasons: { name: string; count: number; help: string }[];
  regions: { reads: number; writes: number; idle_s: number | null; resident: number }[];
  region_bytes: number;
  sampled: boolean;
  range: { start: number; end: number; lines_in_range: number; lines: Line[] } | null;
}

export interface Line {
  start: number;
  len: number;
  device: string | null;
  decision: string;
  decided_s: number | null;
  why: string;
}

export interface Kind {
  requests: number;
  bytes: number;
  latency_us_mean: number;
  latency_us: number[];
}

export interface Total {
  requests: number;
  bytes: number;
  latency_s: number;
  latency_counts: number[];
}

export interface Observed {
  read_total: Total;
  write_total: Total;
  origin: { reads: Kind; writes: Kind };
  cache: { reads: Kind; writes: Kind };
}

/** How large a pool should be. */
export interface Advice {
  basis: string;
  observed_s: number;
  pool_bytes: number | null;
  measured_bytes: number;
  curve: { pool_bytes: number; hit_ratio: number; error: number }[];
  sizes: {
    label: string;
    pool_bytes: number;
    measured: boolean;
    hit_ratio: number | null;
    latency_us_mean: number | null;
    latency_us_p99: number | null;
    cost: number | null;
  }[];
  warnings: string[];
  prices: { dated: string; currency: string; years: number } | null;
}

export interface Event {
  at: number;
  severity: "bad" | "good" | "info";
  subject: string;
  text: string;
}

/** Figures of a span of time; one that is not known is not there. */
export interface Sample {
  at: number;
  reads_s?: number;
  writes_s?: number;
  hits_s?: number;
  misses_s?: number;
  origin_s?: number;
  kept_s?: number;
  dirty_bytes?: number;
  read_us_mean?: number;
  read_us_p50?: number;
  read_us_p99?: number;
  write_us_p50?: number;
  write_us_p99?: number;
  origin_read_us_mean?: number;
}

export interface History {
  /** The time from one sample to the next. */
  step_s: number;
  samples: Sample[];
  /** Why something is not kept at present. */
  trouble: string | null;
}

export interface Problem {
  status: number;
  title: string;
  detail: string;
  remedy: string;
}
