/** From devices on the machine to a served, cached volume. */

import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { failure, Refused, request, segment } from "../api";
import { status } from "../live";
import type { FileDifference, Place, Problem } from "../model";
import { Action, Card, Refusal } from "../parts";
import { bytes, plain } from "../text";

const MODES: [string, string][] = [
  ["write-through", "Reads and writes are cached; writes reach the origin before they are answered."],
  ["write-around", "Reads are cached; writes go to the origin alone."],
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

/** The lines that set-up would write. */
function Preview(props: { difference: FileDifference }) {
  const { path, line, lost, new: added } = props.difference;
  return (
    <figure id="preview">
      <figcaption>
        {path}, from line {line}
      </figcaption>
      <pre tabIndex={0}>
        {lost.map((text) => `- ${text}\n`)}
        {added.map((text) => `+ ${text}\n`)}
      </pre>
    </figure>
  );
}

export function Setup() {
  const places = useSignal<Place[] | null>(null);
  const origin = useSignal<string | null>(null);
  const ssds = useSignal<string[]>([]);
  const mode = useSignal("write-through");
  const chosenPool = useSignal<string | null>(null);
  const name = useSignal("");
  const agreed = useSignal(false);
  const blockDevice = useSignal(false);
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
  const volume = name.value || (chosenOrigin ? (chosenOrigin.name ?? plain(chosenOrigin.place)) : "");
  const ready = chosenOrigin && (ssds.value.length > 0 || hasDevices) && (erased.length === 0 || agreed.value);

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
      block_device: blockDevice.value,
    };
  };
  const ask = async <T,>(path: string, then: (answer: T) => void) => {
    if (!chosenOrigin) return;
    busy.value = true;
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
        <div class="choices">
          {MODES.map(([value, meaning]) => (
            <label class="choice" key={value}>
              <input type="radio" name="mode" checked={mode.value === value} onChange={() => (mode.value = value)} />
              <span>
                <strong>{value}</strong>
                <br />
                {meaning}
              </span>
            </label>
          ))}
        </div>
        <p class="muted">
          Write-back is given to a served volume on its own page, with the two devices of its log.
        </p>
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
            Name <input value={volume} onInput={(e) => (name.value = e.currentTarget.value)} />
          </label>
        </p>
        <label class="choice">
          <input type="checkbox" checked={blockDevice.value} onChange={() => (blockDevice.value = !blockDevice.value)} />
          <span>
            Make it a block device of this machine too, by ublk (Linux 6.0). Clients of NBD reach it in any case.
          </span>
        </label>
        {refused.value && <Refusal found={refused.value} dismiss={() => (refused.value = null)} />}
        {preview.value && <Preview difference={preview.value} />}
        <p class="row">
          <Action id="serve" label={busy.value ? "Working…" : "Serve it"} disabled={!ready || busy.value} run={serve} />
          <Action label="Show the change of the configuration" disabled={!ready || busy.value} run={look} />
        </p>
      </Card>
    </>
  );
}
