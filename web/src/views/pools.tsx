/** Pools, arrays and devices: their state, and what to do when one is lost. */

import { useSignal } from "@preact/signals";
import { change, segment } from "../api";
import { status } from "../live";
import type { ArrayState, Pool } from "../model";
import { Action, Card, Confirmed, PutBack, State, Table, Troubles } from "../parts";
import { bytes, figure, latency, plain, span } from "../text";
import { Jobs } from "./jobs";

/** Rows shown at a time. */
const ROWS_MAX = 100;

/** A device of the configuration by name, or any other by its path or URI. */
function device(text: string) {
  if (!text.includes("/")) return { name: text };
  return text.startsWith("nbd") ? { name: plain(text), nbd: text } : { name: plain(text), path: text };
}

function AddDevice(props: { label: string; run: (text: string) => void }) {
  const text = useSignal("");
  return (
    <p class="row">
      <label>
        {props.label}{" "}
        <input placeholder="name, /path or nbd://…" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />
      </label>
      <Action label="Add" disabled={!text.value.trim()} run={() => props.run(text.value.trim())} />
    </p>
  );
}

function PoolCard(props: { pool: Pool }) {
  const { pool } = props;
  const path = `/api/v1/pools/${segment(pool.name)}/devices`;
  const used = pool.lines > 0 ? (100 * pool.lines_used) / pool.lines : 0;
  return (
    <Card title={`Pool ${pool.name}`}>
      <p>
        {bytes(pool.lines_used * pool.line_bytes)} of {bytes(pool.lines * pool.line_bytes)} used, policy {pool.policy}.
      </p>
      <progress max={100} value={used} aria-label={`${figure(used)}% used`} />
      <Table label={`Devices of ${pool.name}`} head={["Device", "State", "Size", "Faults", "Controller", ""]}>
        {pool.devices.map((member) => (
          <tr key={member.name}>
            <th scope="row">{member.name}</th>
            <td>
              <State state={member.state} />
            </td>
            <td>{bytes(member.capacity_bytes)}</td>
            <td>{member.faults}</td>
            <td>{member.controller}</td>
            <td>
              <div class="row">
                {member.state.startsWith("ejected") && <PutBack pool={pool.name} device={member.name} />}
                <Confirmed label="Take out" danger run={() => change("DELETE", `${path}/${segment(member.name)}`)}>
                  <p>
                    What {member.name} holds of pool {pool.name} is forgotten, and is read from the origins again. No data are
                    lost. It is put back below by its name, and filled again.
                  </p>
                </Confirmed>
              </div>
            </td>
          </tr>
        ))}
      </Table>
      <AddDevice label="Another device, which is overwritten" run={(text) => change("POST", path, device(text))} />
    </Card>
  );
}

function ArrayCard(props: { array: ArrayState }) {
  const { array } = props;
  const overwrite = useSignal(false);
  const path = `/api/v1/arrays/${segment(array.name)}`;
  const { progress, scrub } = array;
  return (
    <Card
      title={`Array ${array.name}`}
      actions={<Action label="Scrub" disabled={scrub?.running} run={() => change("POST", `${path}/scrub`, { repair: false })} />}
    >
      <p>
        {array.level}, {bytes(array.size_bytes)} <State state={array.state} />
      </p>
      {progress && (
        <p>
          <progress max={100} value={progress.percent} aria-label="Rebuild" /> {figure(progress.percent)}%
          {progress.left_s !== null && `, ${span(progress.left_s)} left`}
        </p>
      )}
      {scrub && (
        <p>
          {scrub.running ? "A scrub runs" : "The last scrub"}: {scrub.mismatches} places differed, {scrub.unreadable} could
          not be read{scrub.error ? `; it stopped: ${scrub.error}` : ""}.
        </p>
      )}
      {array.warnings.map((warning) => (
        <p key={warning}>{warning}</p>
      ))}
      <Table label={`Members of ${array.name}`} head={["Role", "Device", "State", "Errors", "Repaired", ""]}>
        {array.members.map((member) => (
          <tr key={member.role}>
            <td>{member.role}</td>
            <th scope="row">{member.device ?? "none"}</th>
            <td>
              <State state={member.state} />
            </td>
            <td>{member.read_errors + member.write_errors}</td>
            <td>{member.repaired}</td>
            <td>
              {member.device && member.state === "in sync" && (
                <Confirmed label="Take out" danger run={() => change("DELETE", `${path}/members/${member.role}`)}>
                  <p>
                    Array {array.name} goes on without {member.device}, with less redundancy: the next loss may end it. Put
                    back, the device is filled from the others.
                  </p>
                </Confirmed>
              )}
              {member.device && member.state === "lost" && (
                <Confirmed
                  label="Put back"
                  run={() => change("POST", `${path}/members`, { device: { name: member.device }, overwrite: false })}
                >
                  <p>
                    {member.device} is filled from the other members of {array.name}: what it lacks is overwritten. If it
                    holds anything else, the daemon refuses it. Clients are served meanwhile.
                  </p>
                </Confirmed>
              )}
            </td>
          </tr>
        ))}
      </Table>
      <AddDevice
        label="Give it a device"
        run={(text) => change("POST", `${path}/members`, { device: device(text), overwrite: overwrite.value })}
      />
      <label class="choice">
        <input type="checkbox" checked={overwrite.value} onChange={() => (overwrite.value = !overwrite.value)} />
        <span>What that device holds may be lost.</span>
      </label>
      {array.events.length > 0 && (
        <details>
          <summary>Its last events</summary>
          <ul>
            {array.events.map((event, i) => (
              <li key={i}>{event}</li>
            ))}
          </ul>
        </details>
      )}
    </Card>
  );
}

export function Pools() {
  const now = status.value;
  if (!now) return <p class="muted">Waiting for the daemon…</p>;
  const found = now.troubles;
  return (
    <>
      <h1>Pools, arrays and devices</h1>
      {found.length > 0 && <Troubles found={found} />}
      {now.pools.map((pool) => (
        <PoolCard key={pool.name} pool={pool} />
      ))}
      {now.arrays.map((array) => (
        <ArrayCard key={array.name} array={array} />
      ))}
      <Jobs jobs={now.jobs} />
      <Card title="Devices">
        <Table
          label="Devices"
          head={["Device", "Use", "Place", "Size", "Reads/s", "Mean", "99%", "Writes/s", "Mean", "Busy", "Wear", "Errors"]}
        >
          {now.devices.slice(0, ROWS_MAX).map((open) => (
            <tr key={open.name}>
              <th scope="row">{open.name}</th>
              <td>{open.role}</td>
              <td class="place">{open.place}</td>
              <td>{bytes(open.size_bytes)}</td>
              <td>{figure(open.read.iops, 0)}</td>
              <td>{latency(open.read.latency_us_mean)}</td>
              <td>{latency(open.read.latency_us_p99)}</td>
              <td>{figure(open.write.iops, 0)}</td>
              <td>{latency(open.write.latency_us_mean)}</td>
              <td>{figure(open.busy_percent, 0)}%</td>
              <td>{open.wear ? `${open.wear.used_percent}%` : "–"}</td>
              <td>{open.errors}</td>
            </tr>
          ))}
        </Table>
        {now.devices.length > ROWS_MAX && (
          <p class="muted">
            {ROWS_MAX} of {now.devices.length} devices are shown; `hotset status` has all.
          </p>
        )}
      </Card>
    </>
  );
}
