/** The daemon's state as it arrives once a second. */

import { signal } from "@preact/signals";
import type { Problem, Status } from "./model";

export const status = signal<Status | null>(null);
/** Why there is no newer one, if that is so. */
export const away = signal<Problem | null>(null);
/** When it came. */
export const seen = signal<Date | null>(null);

function take(now: Status): void {
  status.value = now;
  seen.value = new Date();
  away.value = null;
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
