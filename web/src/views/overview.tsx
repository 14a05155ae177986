/** Is all well, how fast is it, and what changed last. */

import { useSignal } from "@preact/signals";
import { change, segment } from "../api";
import { status } from "../live";
import type { Status, Volume } from "../model";
import { Action, Card, Confirmed, standing, State, Table, Troubles } from "../parts";
import { bytes, count, figure, latency, span } from "../text";
import { Charts } from "./charts";
import { Dirty } from "./dirty";
import { Recent } from "./events";

/** Rows shown at a time; a filter finds the others. */
const ROWS_MAX = 50;

function Health(props: { now: Status }) {
  const found = props.now.troubles;
  if (found.length === 0) {
    return (
      <div class="banner good" role="status">
        <p>
          <strong>{props.now.volumes.length > 0 ? "All is well." : "No volume is served yet."}</strong> Up{" "}
          {span(props.now.uptime_s)}, {count(props.now.volumes.length, "volume")},{" "}
          {count(props.now.nbd.connections, "connection")}.
        </p>
      </div>
    );
  }
  return <Troubles found={found} />;
}

export function Switch(props: { volume: Volume }) {
  const { volume } = props;
  const set = (off: boolean) => change("PUT", `/api/v1/volumes/${segment(volume.name)}/off`, { off });
  if (volume.off !== null) return <Action label="Turn caching on" run={() => set(false)} />;
  if (volume.mode === "pass-through") return null;
  const log = volume.write_back;
  return (
    <Confirmed label="Turn caching off" run={() => set(true)}>
      <p>
        All reads and writes of {volume.name} go to {volume.origin} alone then, and take as long as they take there. No data
        are lost.
      </p>
      {log && (
        <p>
          {volume.origin} gets the {bytes(log.dirty_bytes)} first that it lacks. The log keeps its devices, and writes are
          answered by it again once caching is on.
        </p>
      )}
      <p>Turned on again, {volume.name} is {volume.mode} as now.</p>
    </Confirmed>
  );
}

function Volumes(props: { now: Status }) {
  const filter = useSignal("");
  const { volumes } = props.now;
  const wanted = volumes.filter((volume) => volume.name.includes(filter.value));
  return (
    <Card
      title="Volumes"
      actions={
        volumes.length > 10 && (
          <label>
            Filter{" "}
            <input type="search" value={filter.value} onInput={(e) => (filter.value = e.currentTarget.value)} />
          </label>
        )
      }
    >
      {volumes.length === 0 ? (
        <p>
          No volume is served. <a href="#/setup">Set one up</a>.
        </p>
      ) : (
        <Table label="Volumes" head={["Volume", "Hit ratio", "Requests/s", "MB/s", "99% of reads", "Caching", "Mode", "Size", "Origin", "Pool"]}>
          {wanted.slice(0, ROWS_MAX).map((volume) => (
            <tr key={volume.name}>
              <th scope="row">
                <a href={`#/volume/${segment(volume.name)}`}>{volume.name}</a>
              </th>
              <td class="hits">{volume.hit_percent === null ? "–" : `${figure(volume.hit_percent)}%`}</td>
              <td>{figure(volume.read.iops + volume.write.iops, 0)}</td>
              <td>{figure(volume.read.mb_s + volume.write.mb_s)}</td>
              <td>{volume.read.latency_us_p99 === null ? "–" : latency(volume.read.latency_us_p99)}</td>
              <td>
                <Switch volume={volume} />
              </td>
              <td>
                <State state={standing(volume)} />
              </td>
              <td>{bytes(volume.size_bytes)}</td>
              <td>{volume.origin}</td>
              <td>{volume.pool}</td>
            </tr>
          ))}
        </Table>
      )}
      {wanted.length > ROWS_MAX && (
        <p class="muted">
          {ROWS_MAX} of {wanted.length} volumes are shown; filter by name to find others.
        </p>
      )}
    </Card>
  );
}

export function Overview() {
  const now = status.value;
  // All of it at once: nothing moves under the pointer.
  if (!now) return <p class="muted">Waiting for the daemon…</p>;
  return (
    <>
      <Health now={now} />
      <Charts />
      <Dirty volumes={now.volumes} />
      <Volumes now={now} />
      <Recent />
    </>
  );
}
