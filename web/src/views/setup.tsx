/** From devices on the machine to a served, cached volume. */

import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { failure, Refused, request, segment } from "../api";
import { status } from "../live";
import type { FileDifference, Place, Problem } from "../model";
import { Action, Card, Refusal } from "../parts";
import { bytes, plain } from "../text";
import { given, LogFields, NO_LOG } from "./log";

const MODES: [string, string, string][] = [
  ["write-through", "write-through", "Reads and writes are cached; writes reach the origin before they are answered."],
  ["write-around", "write-around", "Reads are cached; writes go to the origin alone."],
  [
    "write-back",
    "write-back",
    "Writes are answered by a log on two devices that do not fail together, and reach the origin later. If both are lost, the origin is as it was up to 30 seconds before.",
  ],
];

const FRONTENDS: [string, string, string][] = [
  ["nbd", "NBD", "Clients of this machine and others."],
  ["ublk", "Block device", "Of this machine alone, by ublk (Linux 6.5)."],
  ["vhost-user", "Disk of a virtual machine", "Of this machine, by vhost-user at a socket."],
];

function describe(place: Place): string {
  const kind = place.rotational === null ? "" : place.rotational ? ", rotational" : ", flash";
  return `${place.model ?? "unknown model"}, ${bytes(place.size_bytes)}${kind}`;
}

/** What a pool is called that set-up makes. */
const NEW_POOL = "cache";

/** One device as a choice. What is in use cannot be chosen. */
function Choice(props: { place: Place; name: string; kind: "radio" | "checkbox"; chosen: boolean; erase: boolean; run: () => void }) {
  const { place } = props;
  return (
    <label class={`choice ${place.used_by ? "used" : ""}`}>
      <input type={props.kind} name={props.name} checked={props.chosen} disabled={!!place.used_by} onChange={props.run} />
      <span>
        <strong>{place.name ?? place.place}</strong> <span class="muted">{place.name ? place.place : ""}</span>
        <br />
        {describe(place)}
        {place.holds && <em> · holds {place.holds}{props.erase ? ", which would be lost" : ""}</em>}
        {place.used_by && <em> · in use: {place.used_by}</em>}
      </span>
    </label>
  );
}

/** A name for a pool that is not among `taken`. */
function unused(taken: string[]): string {
  let name = NEW_POOL;
  for (let n = 2; taken.includes(name); n++) name = `${NEW_POOL}${n}`;
  return name;
}

function body(place: Place) {
  if (place.name) return { name: place.name };
  const name = plain(place.place);
  return place.place.startsWith("nbd") ? { name, nbd: place.place } : { name, path: place.place };
}

/** A choice of one among some, each with its meaning. */
function Options(props: { name: string; options: [string, string, string][]; chosen: string; choose: (value: string) => void }) {
  return (
    <div class="choices">
      {props.options.map(([value, label, meaning]) => (
        <label class="choice" key={value}>
          <input type="radio" name={props.name} checked={props.chosen === value} onChange={() => props.choose(value)} />
          <span>
            <strong>{label}</strong>
            <br />
            {meaning}
          </span>
        </label>
      ))}
    </div>
  );
}

/** The places with the fitting ones first, rotational or flash. */
function ordered(places: Place[], rotational: boolean): Place[] {
  const rank = (place: Place) => (place.used_by ? 3 : place.rotational === rotational ? 0 : place.rotational === null ? 1 : 2);
  return [...places].sort((one, other) => rank(one) - rank(other));
}

function Other(props: { label: string; add: (place: Place) => void }) {
  const text = useSignal("");
  const add = () => {
    const place = text.value.trim();
    if (!place) return;
    props.add({ name: null, place, size_bytes: null, model: null, rotational: null, holds: null, used_by: null });
    text.value = "";
  };
  return (
    <p class="row">
      <label>
        {props.label}{" "}
        <input placeholder="/path or nbd://…" value={text.value} onInput={(e) => (text.value = e.currentTarget.value)} />
      </label>
      <button type="button" onClick={add}>
        Add to the list
      </button>
    </p>
  );
}

/** The lines of a change, with what becomes of each. Those that come again between new ones stay. */
function marked({ lost, new: added }: FileDifference): string[] {
  const left = [...lost];
  const lines = added.map((text) => (text === left[0] ? `  ${left.shift()}` : `+ ${text}`));
  return left.length === 0 ? lines : [...lost.map((text) => `- ${text}`), ...added.map((text) => `+ ${text}`)];
}

/** The lines that set-up would write. */
function Preview(props: { difference: FileDifference }) {
  const { path, line } = props.difference;
  return (
    <figure id="preview">
      <figcaption>
        {path}, from line {line}
      </figcaption>
      <pre tabIndex={0}>{marked(props.difference).join("\n")}</pre>
    </figure>
  );
}

export function Setup() {
  const places = useSignal<Place[] | null>(null);
  const origin = useSignal<string | null>(null);
  const ssds = useSignal<string[]>([]);
  const mode = useSignal("write-through");
  const chosenPool = useSignal<string | null>(null);
  const chosenName = useSignal<string | null>(null);
  const agreed = useSignal(false);
  const log = useSignal(NO_LOG);
  const chosenFrontend = useSignal<string | null>(null);
  const chosenSocket = useSignal<string | null>(null);
  const busy = useSignal(false);
  const refused = useSignal<Problem | null>(null);
  const preview = useSignal<FileDifference | null>(null);

  useEffect(() => {
    request<Place[]>("GET", "/api/v1/places")
      .then((all) => (places.value = all))
      .catch((error) => {
        places.value = [];
        if (error instanceof Refused) failure.value = error.problem;
      });
  }, []);

  const pools = status.value?.pools ?? [];
  // An empty choice is a pool that is made.
  const pool = chosenPool.value ?? pools[0]?.name ?? "";
  const all = places.value ?? [];
  const find = (place: string) => all.find((other) => other.place === place);
  const chosenOrigin = useComputed(() => (origin.value ? find(origin.value) : undefined)).value;
  const erased = ssds.value.map(find).filter((place) => place?.holds);
  const hasDevices = (pools.find((other) => other.name === pool)?.devices.length ?? 0) > 0;
  const volume = chosenName.value ?? (chosenOrigin ? (chosenOrigin.name ?? plain(chosenOrigin.place)) : "");
  const isLogged = mode.value === "write-back";
  const { log: copies, journal } = given(log.value);
  const listeners = status.value?.nbd.listeners ?? [];
  const frontend = chosenFrontend.value ?? (listeners.length > 0 ? "nbd" : "ublk");
  const socket = chosenSocket.value ?? `/run/hotset/${volume}.sock`;
  const lacks = [
    !chosenOrigin && "a slow device",
    ssds.value.length === 0 && !hasDevices && "a fast device",
    erased.length > 0 && !agreed.value && "your consent to overwrite",
    isLogged && copies.length < 2 && "two devices of the log",
    chosenOrigin && !volume && "a name",
    frontend === "nbd" && listeners.length === 0 && "a [[listen]] for NBD in the configuration, or another frontend",
    frontend === "vhost-user" && !socket.startsWith("/") && "an absolute path of the socket",
  ].filter((lack) => typeof lack === "string");

  const toggle = (place: string) => {
    const has = ssds.value.includes(place);
    ssds.value = has ? ssds.value.filter((other) => other !== place) : [...ssds.value, place];
  };

  const wanted = (chosen: Place) => {
    const used = pool || unused(pools.map((other) => other.name));
    const devices = ssds.value.map(find).filter((device) => device !== undefined).map(body);
    return {
      volume: { name: volume, origin: body(chosen), pool: used, mode: mode.value },
      pool: pool ? undefined : { name: used, devices },
      devices: pool ? devices : [],
      ...(isLogged && { log: copies, journal }),
      block_device: frontend === "ublk",
      socket: frontend === "vhost-user" ? socket : undefined,
    };
  };
  const ask = async <T,>(path: string, then: (answer: T) => void) => {
    if (!chosenOrigin) return;
    busy.value = true;
    // A pool that is made and undone is in the status for a moment, and changes no choice.
    chosenPool.value = pool;
    refused.value = preview.value = null;
    try {
      then(await request<T>("POST", path, wanted(chosenOrigin)));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      refused.value = error.problem;
    }
    busy.value = false;
  };
  const serve = () => ask("/api/v1/set-up", () => (location.hash = `#/volume/${segment(volume)}`));
  const look = () => ask<FileDifference>("/api/v1/set-up/preview", (difference) => (preview.value = difference));

  if (!places.value) return <p class="muted">Looking for devices…</p>;
  return (
    <>
      <h1>Set up a cached volume</h1>
      <Card title="1. The slow device">
        <p class="muted">It holds the data. It is neither formatted nor moved.</p>
        <div class="choices">
          {ordered(all, true).map((place) => (
            <Choice
              key={place.place}
              place={place}
              kind="radio"
              name="origin"
              erase={false}
              chosen={origin.value === place.place}
              run={() => (origin.value = place.place)}
            />
          ))}
        </div>
        <Other label="Another file, device or NBD export" add={(place) => (places.value = [...all, place])} />
      </Card>
      <Card title="2. The fast devices">
        <p class="muted">
          {hasDevices ? `Pool ${pool} has devices already; more are optional.` : "They become the cache; what is on them is overwritten."}
        </p>
        <div class="choices">
          {ordered(all, false)
            .filter((place) => place.place !== origin.value)
            .map((place) => (
              <Choice
                key={place.place}
                place={place}
                kind="checkbox"
                name="ssd"
                erase={true}
                chosen={ssds.value.includes(place.place)}
                run={() => toggle(place.place)}
              />
            ))}
        </div>
        {erased.length > 0 && (
          <label class="choice">
            <input type="checkbox" checked={agreed.value} onChange={() => (agreed.value = !agreed.value)} />
            <span>
              Overwrite {erased.map((place) => `${place?.place} (${place?.holds})`).join(", ")}. The daemon still refuses a
              device that holds something: blank it first with <code>hotset pool format --yes</code>.
            </span>
          </label>
        )}
      </Card>
      <Card title="3. How">
        <Options name="mode" options={MODES} chosen={mode.value} choose={(value) => (mode.value = value)} />
        {isLogged && (
          <fieldset id="log">
            <legend>Devices of the log</legend>
            <p class="muted">
              Blank partitions or files of two SSDs, for nothing but this log. With a journal on a third device the origin gets
              only the newest of what is written again and again.
            </p>
            <LogFields log={log.value} set={(wanted) => (log.value = wanted)} />
            <datalist id="log-places">
              {all
                .filter(({ place, used_by }) => !used_by && !place.startsWith("nbd") && ![origin.value, ...ssds.value].includes(place))
                .map((place) => (
                  <option key={place.place} value={place.name ?? place.place}>
                    {describe(place)}
                  </option>
                ))}
            </datalist>
          </fieldset>
        )}
        <p class="row">
          <label>
            Pool{" "}
            <select value={pool} onChange={(e) => (chosenPool.value = e.currentTarget.value)}>
              {pools.map((other) => (
                <option key={other.name}>{other.name}</option>
              ))}
              <option value="">a new pool</option>
            </select>
          </label>
          <label>
            Name <input value={volume} onInput={(e) => (chosenName.value = e.currentTarget.value)} />
          </label>
        </p>
        <h3>Clients reach it as</h3>
        <Options name="frontend" options={FRONTENDS} chosen={frontend} choose={(value) => (chosenFrontend.value = value)} />
        {frontend === "nbd" && listeners.length > 0 && <p class="muted">NBD is served at {listeners.join(", ")}.</p>}
        {frontend === "vhost-user" && (
          <p class="row">
            <label>
              Socket, made by the daemon{" "}
              <input size={36} value={socket} onInput={(e) => (chosenSocket.value = e.currentTarget.value)} />
            </label>
          </p>
        )}
        {refused.value && <Refusal found={refused.value} dismiss={() => (refused.value = null)} />}
        {preview.value && <Preview difference={preview.value} />}
        <p class="row">
          <Action id="serve" label={busy.value ? "Working…" : "Serve it"} disabled={lacks.length > 0 || busy.value} run={serve} />
          <Action label="Show the change of the configuration" disabled={lacks.length > 0 || busy.value} run={look} />
        </p>
        {lacks.length > 0 && <p class="muted" id="lacks">It needs {lacks.join(", and ")}.</p>}
      </Card>
    </>
  );
}
