/** One volume: its heat, its hits, its latencies, and why a range is not cached. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { change, Refused, request, segment } from "../api";
import { status } from "../live";
import type { Advice, Explained, Line, Observed } from "../model";
import { Card, Confirmed, Copied, standing, State, Table } from "../parts";
import { bytes, figure, span } from "../text";
import { AdviceView } from "./advice";
import { Charts } from "./charts";
import { Dirty } from "./dirty";
import { Histogram, Percentiles } from "./latency";
import { ModeCard } from "./mode";
import { Switch } from "./overview";

const REFRESH_MS = 5000;
const CELLS_MAX = 256;

/** The volume cut into cells: how often each is asked for, and how much of it is cached. */
function Heat(props: { explained: Explained }) {
  const { regions, region_bytes } = props.explained;
  const step = Math.max(1, Math.ceil(regions.length / CELLS_MAX));
  const cells: { at: number; heat: number; resident: number }[] = [];
  for (let i = 0; i < regions.length; i += step) {
    const part = regions.slice(i, i + step);
    const heat = part.reduce((all, region) => all + region.reads + region.writes, 0);
    const resident = part.reduce((all, region) => all + region.resident, 0) / part.length;
    cells.push({ at: i * region_bytes, heat, resident });
  }
  const most = Math.log1p(Math.max(...cells.map((cell) => cell.heat), 1));
  const level = (share: number) => Math.min(8, Math.ceil(share * 8));
  const hot = cells.filter((cell) => cell.heat > 0).length;
  const mean = cells.reduce((all, cell) => all + cell.resident, 0) / Math.max(cells.length, 1);
  return (
    <>
      {(["heat", "resident"] as const).map((which) => (
        <div key={which}>
          <h3>{which === "heat" ? "Asked for lately" : "In the pool"}</h3>
          <div
            class={`map ${which}`}
            role="img"
            aria-label={
              which === "heat"
                ? `${hot} of ${cells.length} parts of the volume were asked for lately`
                : `${figure(mean * 100)}% of the volume is in the pool`
            }
          >
            {cells.map((cell) => (
              <span
                key={cell.at}
                class={`l${level(which === "heat" ? Math.log1p(cell.heat) / most : cell.resident)}`}
                title={`${bytes(cell.at)}: ${cell.heat} accesses lately, ${figure(cell.resident * 100)}% in the pool`}
              />
            ))}
          </div>
        </div>
      ))}
      <p class="muted note">
        From the volume's start to its end, {bytes(step * region_bytes)} a cell; accesses are halved every ten minutes
        {props.explained.sampled ? "; residence is estimated from some lines of each part" : ""}.
      </p>
    </>
  );
}

function Reasons(props: { reasons: Explained["reasons"] }) {
  if (props.reasons.length === 0) return <p class="muted">So far nothing was kept out of the pool, and nothing has left it.</p>;
  return (
    <Table label="Decisions" head={["Reason", "Count", "Meaning"]}>
      {props.reasons.map((reason) => (
        <tr key={reason.name}>
          <th scope="row">{reason.name}</th>
          <td>{figure(reason.count, 0)}</td>
          <td class="about">{reason.help}</td>
        </tr>
      ))}
    </Table>
  );
}

function Why(props: { volume: string; size: number }) {
  const at = useSignal("0");
  const lines = useSignal<Line[] | null>(null);
  const wrong = useSignal("");
  const ask = async () => {
    const start = Math.floor(Number(at.value) * 1024 * 1024);
    const end = Math.min(start + 1024 * 1024, props.size);
    try {
      const path = `/api/v1/volumes/${segment(props.volume)}/explanation?start=${start}&end=${end}`;
      lines.value = (await request<Explained>("GET", path)).range?.lines ?? [];
      wrong.value = "";
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      wrong.value = `${error.problem.detail}; ${error.problem.remedy}`;
      lines.value = null;
    }
  };
  return (
    <Card title="Why is it cached, or not?">
      <p class="row">
        <label>
          The MiB at{" "}
          <input type="number" min="0" value={at.value} onInput={(e) => (at.value = e.currentTarget.value)} />
        </label>
        <button type="button" onClick={ask}>
          Explain
        </button>
      </p>
      {wrong.value && <p role="alert">{wrong.value}</p>}
      {lines.value && (
        <Table label="Lines" head={["Line at", "Device", "Decision", "Ago", "Why"]}>
          {lines.value.map((line) => (
            <tr key={line.start}>
              <td>{bytes(line.start)}</td>
              <td>{line.device ?? "–"}</td>
              <td>{line.decision}</td>
              <td>{line.decided_s === null ? "–" : span(line.decided_s)}</td>
              <td class="about">{line.why}</td>
            </tr>
          ))}
        </Table>
      )}
    </Card>
  );
}

export function VolumeView(props: { name: string }) {
  const explained = useSignal<Explained | null>(null);
  const observed = useSignal<Observed | null>(null);
  const advice = useSignal<Advice | string | null>(null);
  const now = status.value;
  const volume = now?.volumes.find((other) => other.name === props.name);
  const path = `/api/v1/volumes/${segment(props.name)}`;

  useEffect(() => {
    let ended = false;
    const load = async () => {
      const found = await Promise.all([
        request<Explained>("GET", `${path}/explanation`),
        request<Observed>("GET", `${path}/observation`),
      ]).catch(() => null);
      if (ended || !found) return;
      [explained.value, observed.value] = found;
      advice.value = await request<Advice>("GET", `${path}/advice`).catch((error: unknown) =>
        error instanceof Refused ? `${error.problem.detail}; ${error.problem.remedy}.` : null,
      );
    };
    void load();
    const timer = setInterval(load, REFRESH_MS);
    return () => {
      ended = true;
      clearInterval(timer);
    };
  }, [props.name]);

  if (!now) return <p class="muted">Waiting for the daemon…</p>;
  if (!volume) {
    const waiting = now.waiting.find((other) => other.name === props.name);
    return waiting ? (
      <p role="status">
        Volume {props.name} is not served yet: {waiting.why}
      </p>
    ) : (
      <p>
        No volume is named {props.name}. <a href="#/">Overview</a>
      </p>
    );
  }
  const remove = async () => {
    if (await change("DELETE", path)) location.hash = "#/";
  };
  return (
    <>
      <h1>
        Volume {volume.name} <State state={standing(volume)} />
      </h1>
      <Card
        title="State"
        actions={
          <>
            <Switch volume={volume} />
            <Confirmed label="Remove" danger run={remove}>
              <p>
                Clients of {volume.name} lose it once their requests in flight have ended, and the configuration does not
                have it any more. Its data stay on {volume.origin}.
              </p>
            </Confirmed>
          </>
        }
      >
        <p>
          {bytes(volume.size_bytes)} of {volume.origin}, cached in {volume.pool}. Hit ratio of the last second:{" "}
          <strong id="hit-ratio">{volume.hit_percent === null ? "–" : `${figure(volume.hit_percent)}%`}</strong>.{" "}
        </p>
        {explained.value && (
          <p>
            {volume.mode}: {explained.value.mode_help}.
          </p>
        )}
        <h3>Clients reach it as</h3>
        {volume.frontends.map((frontend) => (
          <Copied key={frontend} text={frontend} />
        ))}
        {volume.frontends.length === 0 && <p class="muted">nothing: no frontend has it at present.</p>}
      </Card>
      <Charts volume={volume.name} pool={volume.pool} />
      <Dirty volumes={[volume]} />
      <ModeCard volume={volume} />
      {explained.value && (
        <Card title="Heat over its addresses">
          <Heat explained={explained.value} />
        </Card>
      )}
      {observed.value && (
        <Card title="Latency">
          <Histogram observed={observed.value} />
          <Percentiles observed={observed.value} />
        </Card>
      )}
      {advice.value && (
        <Card title="How large should the pool be?">
          {typeof advice.value === "string" ? <p class="muted">{advice.value}</p> : <AdviceView advice={advice.value} />}
        </Card>
      )}
      {explained.value && (
        <Card title="Decisions by reason">
          <Reasons reasons={explained.value.reasons.filter((reason) => reason.count > 0)} />
        </Card>
      )}
      <Why volume={props.name} size={volume.size_bytes} />
    </>
  );
}
