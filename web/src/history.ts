/** How the daemon fared over a span of time, as the web server keeps it. */

import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { request } from "./api";
import type { History, Sample } from "./model";

/** Spans that can be looked at, in seconds. */
export const SPANS: [string, number][] = [
  ["1 h", 3600],
  ["24 h", 86_400],
  ["7 d", 604_800],
  ["30 d", 2_592_000],
];

/** The span that is looked at, in all views. */
export const span_s = signal(SPANS[0]![1]);

const REFRESH_S_MAX = 60;

/** The history of a volume, or of all; null until it is known. */
export function useHistory(volume?: string): History | null {
  const history = useSignal<History | null>(null);
  const wanted = span_s.value;
  useEffect(() => {
    let timer = 0;
    let ended = false;
    const load = async () => {
      const query = new URLSearchParams({ from: String(Math.floor(Date.now() / 1000) - wanted) });
      if (volume !== undefined) query.set("volume", volume);
      const found = await request<History>("GET", `/api/v1/history?${query}`).catch(() => null);
      if (ended) return;
      if (found) history.value = found;
      timer = window.setTimeout(load, Math.min(found?.step_s ?? 5, REFRESH_S_MAX) * 1000);
    };
    void load();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [volume, wanted]);
  return history.value;
}

/** The samples of a history, with an empty one where some are missing. */
export function unbroken(history: History | null): Sample[] {
  const step = history?.step_s ?? 0;
  return (history?.samples ?? []).flatMap((sample, i, all) => {
    const before = all[i - 1];
    return before && sample.at - before.at > 1.5 * step ? [{ at: before.at + step }, sample] : [sample];
  });
}

/** The mean of a figure, each sample weighted; null if it is not known. */
export function mean(
  samples: Sample[],
  figure: (sample: Sample) => number | undefined,
  weight: (sample: Sample) => number = () => 1,
): number | null {
  let [sum, weights] = [0, 0];
  for (const sample of samples) {
    const value = figure(sample);
    if (value === undefined) continue;
    sum += value * weight(sample);
    weights += weight(sample);
  }
  return weights > 0 ? sum / weights : null;
}

/** What is divided, if it is something. */
export function ratio(part: number | null | undefined, whole: number | null | undefined): number | null {
  return part === null || part === undefined || !whole ? null : part / whole;
}

/** Of the blocks looked up in the pool, the share found there. */
export function hits(samples: Sample[]): number | null {
  const found = mean(samples, (sample) => sample.hits_s);
  const missed = mean(samples, (sample) => sample.misses_s);
  return ratio(found, (found ?? 0) + (missed ?? 0));
}

/** How many times as long as a client waits for a read, one of the origin takes. */
export function faster(samples: Sample[]): { times: number; client_us: number; origin_us: number } | null {
  const client_us = mean(samples, (sample) => sample.read_us_mean, (sample) => sample.reads_s ?? 0);
  const origin_us = mean(samples, (sample) => sample.origin_read_us_mean);
  return client_us && origin_us ? { times: origin_us / client_us, client_us, origin_us } : null;
}
