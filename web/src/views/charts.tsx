/** Figures over time: tiles of the most important, and charts with events as marks. */

import { useMemo } from "preact/hooks";
import { Chart, type Mark } from "../chart";
import { faster, hits, mean, ratio, span_s, SPANS, unbroken, useHistory } from "../history";
import { status } from "../live";
import type { Device, History, Sample } from "../model";
import { bytes, figure, latency, span } from "../text";
import { useEvents } from "./events";

function Spans() {
  return (
    <div class="row spans" role="group" aria-label="Time shown">
      {SPANS.map(([label, seconds]) => (
        <button
          key={label}
          type="button"
          aria-pressed={span_s.value === seconds}
          onClick={() => (span_s.value = seconds)}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

function Tile(props: { id: string; label: string; value: string; note: string }) {
  return (
    <div class="tile" id={props.id}>
      <div class="muted">{props.label}</div>
      <div class="value">{props.value}</div>
      <div class="muted note">{props.note}</div>
    </div>
  );
}

/** Devices of a pool, or of all. */
function ssds(pool: string | undefined): Device[] {
  const pools = status.value?.pools.filter((one) => pool === undefined || one.name === pool) ?? [];
  const names = new Set(pools.flatMap((one) => one.devices.map((device) => device.name)));
  return status.value?.devices.filter((device) => names.has(device.name)) ?? [];
}

function Tiles(props: { history: History | null; pool?: string }) {
  const samples = props.history?.samples ?? [];
  const gain = faster(samples);
  const share = hits(samples);
  const kept = mean(samples, (sample) => sample.kept_s);
  const requests = mean(samples, (sample) => (sample.reads_s ?? 0) + (sample.writes_s ?? 0));
  const worn = ssds(props.pool).filter((device) => device.wear !== null);
  const most = worn.sort((a, b) => b.wear!.used_percent - a.wear!.used_percent)[0];
  const over = SPANS.find(([, seconds]) => seconds === span_s.value)![0];
  return (
    <div class="tiles" role="group" aria-label={`Figures of the last ${over}`}>
      <Tile
        id="tile-faster"
        label="Times faster than the origin"
        value={gain ? `${figure(gain.times)}×` : "–"}
        note={gain ? `a read takes ${latency(gain.client_us)}, one of the origin ${latency(gain.origin_us)}` : "once the origin was read"}
      />
      <Tile
        id="tile-hits"
        label="Hit ratio"
        value={share === null ? "–" : `${figure(share * 100)}%`}
        note="of blocks looked up in the pool"
      />
      <Tile
        id="tile-kept"
        label="Requests kept off the origin"
        value={kept === null ? "–" : `${figure(kept)}/s`}
        note={kept === null ? "once there are requests" : `of ${figure(requests)}/s of clients`}
      />
      <Tile
        id="tile-life"
        label="SSD life left"
        value={most ? `${Math.max(0, 100 - most.wear!.used_percent)}%` : "–"}
        note={most ? `of ${most.name}, ${bytes(most.wear!.written_bytes)} written` : "no SSD here reports its wear"}
      />
    </div>
  );
}

/** Events in the time that is shown. */
function useMarks(volume: string | undefined, samples: Sample[]): Mark[] {
  const events = useEvents() ?? [];
  const from = samples[0]?.at ?? Infinity;
  // A volume's own, and those of what it may depend on.
  const other = (subject: string) => subject.startsWith("volume ") && subject !== `volume ${volume}`;
  return events
    .filter((event) => event.at >= from && !(volume !== undefined && other(event.subject)))
    .map(({ at, severity, subject, text }) => ({ at, severity, text: `${subject} ${text}` }));
}

/** How all volumes fared, or one. */
export function Charts(props: { volume?: string; pool?: string }) {
  const history = useHistory(props.volume);
  const samples = useMemo(() => unbroken(history), [history]);
  const marks = useMarks(props.volume, samples);
  const at = useMemo(() => samples.map((sample) => sample.at), [samples]);
  const of = (pick: (sample: Sample) => number | null | undefined) => samples.map((sample) => pick(sample) ?? null);
  const ms = (pick: (sample: Sample) => number | undefined) => of((sample) => ratio(pick(sample), 1000));
  const common = { at, marks };
  return (
    <>
      <Spans />
      <Tiles history={history} pool={props.pool} />
      {history?.trouble && <p role="status">{history.trouble}</p>}
      <div class="charts">
        <Chart
          {...common}
          title="Requests"
          unit="/s"
          lines={[
            { label: "reads", colour: "--blue", values: of((sample) => sample.reads_s) },
            { label: "writes", colour: "--green", values: of((sample) => sample.writes_s) },
            { label: "of the origin", colour: "--red", values: of((sample) => sample.origin_s), dash: [6, 4] },
          ]}
        />
        <Chart
          {...common}
          title="Hit ratio"
          unit="%"
          max={100}
          lines={[{ label: "of blocks read", colour: "--green", values: of((sample) => percent(sample)) }]}
        />
        <Chart
          {...common}
          title="What clients wait"
          unit="ms"
          log
          lines={[
            { label: "half of reads", colour: "--blue", values: ms((sample) => sample.read_us_p50) },
            { label: "99% of reads", colour: "--blue", values: ms((sample) => sample.read_us_p99), dash: [2, 3] },
            { label: "half of writes", colour: "--green", values: ms((sample) => sample.write_us_p50) },
            { label: "99% of writes", colour: "--green", values: ms((sample) => sample.write_us_p99), dash: [2, 3] },
            { label: "read of the origin", colour: "--red", values: ms((sample) => sample.origin_read_us_mean), dash: [8, 4] },
          ]}
        />
        {samples.some((sample) => sample.dirty_bytes !== undefined) && (
          <Chart
            {...common}
            title="Dirty data"
            unit="MiB"
            lines={[{ label: "not at the origin yet", colour: "--red", values: of((sample) => ratio(sample.dirty_bytes, 1 << 20)) }]}
          />
        )}
      </div>
      <p class="muted note">
        {samples.length > 0 ? `Each point is ${span(history!.step_s)}` : "The first figures come within twenty seconds"}; dotted
        verticals are <a href="#/events">events</a>. Waits are measured, and of the origin the mean of its own reads; the load
        that the cache keeps off it is not in that.
      </p>
    </>
  );
}

function percent(sample: Sample): number | null {
  const share = hits([sample]);
  return share === null ? null : share * 100;
}
